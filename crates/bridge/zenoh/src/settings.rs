//! Zenoh's configuration for a link: [`config`].

use serde_json::{Value, json};

use crate::{Certificates, ZenohError, ZenohOptions};

/// Milliseconds after which a silent connection ends.
const LEASE_MS: u32 = 1_000;
/// Number of signs of life that Zenoh sends within a lease.
const KEEP_ALIVES: u32 = 4;
/// Microseconds after which Zenoh ends a connection that takes no bytes.
const WAIT_BEFORE_CLOSE_US: u32 = 500_000;
/// First and maximum milliseconds between two attempts to connect.
const RETRY_MS: (u32, u32) = (250, 1_000);

/// Returns the common beginning of a realm's keys.
pub(crate) fn prefix(realm: &str) -> String {
    format!("tontine/1/{realm}")
}

/// Returns the key of the frames from one host to another.
pub(crate) fn frame_key(realm: &str, from: &str, to: &str) -> String {
    format!("{}/{from}/{to}", prefix(realm))
}

/// Returns the key of the token of a gateway, or of all instances (`*`) of gateways.
pub(crate) fn token_key(realm: &str, name: &str, instance: &str) -> String {
    format!("{}/{name}/up/{instance}", prefix(realm))
}

/// Returns the configuration of a session.
pub(crate) fn config(options: &ZenohOptions) -> Result<zenoh::Config, ZenohError> {
    if let Some(mistake) = options.mistakes().into_iter().next() {
        return Err(mistake);
    }
    let mut config = zenoh::Config::default();
    let mut set = |key: &str, value: Value| {
        let refused = |error| ZenohError::Zenoh(format!("{key}: {error}"));
        config.insert_json5(key, &value.to_string()).map_err(refused)
    };
    // A router passes on frames between its clients; peers it takes for connected with each other.
    let is_client = !options.routers.is_empty();
    set("mode", json!(if is_client { "client" } else { "peer" }))?;
    // Only the hosts of the file are met.
    set("scouting/multicast/enabled", json!(false))?;
    set("scouting/gossip/enabled", json!(false))?;
    set("open/return_conditions/connect_scouted", json!(false))?;
    // Empty too, because Zenoh listens at all addresses by default.
    set("listen/endpoints", json!(options.endpoints(&options.listen)?))?;
    set("connect/endpoints", json!(options.endpoints(&options.connect)?))?;
    let (first, max) = RETRY_MS;
    if is_client {
        // One attempt at each router. [`crate::ZenohLink`] repeats it, and Zenoh later ones.
        set("connect/timeout_ms", json!(0))?;
    }
    let retry = json!({ "period_init_ms": first, "period_max_ms": max });
    set("connect/retry", retry)?;
    set("transport/link/tx/lease", json!(LEASE_MS))?;
    set("transport/link/tx/keep_alive", json!(KEEP_ALIVES))?;
    let congestion = "transport/link/tx/queue/congestion_control/block/wait_before_close";
    set(congestion, json!(WAIT_BEFORE_CLOSE_US))?;
    if let Some(tls) = &options.tls {
        set("transport/link/protocols", json!(["quic"]))?;
        // `quic/` reads the settings of `tls/`.
        for (key, value) in cipher(tls) {
            set(&format!("transport/link/tls/{key}"), value)?;
        }
        set("access_control", access_control(options))?;
    }
    Ok(config)
}

/// Returns the settings of the cipher, under which both sides prove their names.
fn cipher(tls: &Certificates) -> Vec<(&'static str, Value)> {
    let mut settings = vec![
        ("enable_mtls", json!(true)),
        ("verify_name_on_connect", json!(true)),
        ("close_link_on_expiration", json!(true)),
    ];
    let files = [
        (&tls.ca, &["root_ca_certificate"][..]),
        (&tls.certificate, &["listen_certificate", "connect_certificate"]),
        (&tls.private_key, &["listen_private_key", "connect_private_key"]),
    ];
    for (path, keys) in files {
        settings.extend(keys.iter().map(|key| (*key, json!(path))));
    }
    settings
}

/// Returns the rules by which a peer sends only in its own name, and receives only what is for it.
///
/// A peer is known by the common name in its certificate. A router passes on the frames of all
/// peers.
fn access_control(options: &ZenohOptions) -> Value {
    let (realm, name) = (&options.realm, &options.name);
    let mut rules = Vec::new();
    let mut subjects = Vec::new();
    let mut policies = Vec::new();
    let mut allow = |flow: &str, host: &str, number: usize, messages: &[&str], key: String| {
        let id = format!("{flow}-{host}-{number}");
        let messages = messages.to_vec();
        rules.push(json!({
            "id": &id, "flows": [flow], "messages": messages, "key_exprs": [key],
            "permission": "allow",
        }));
        policies.push(json!({ "rules": [id], "subjects": [host] }));
    };
    let tokens = ["liveliness_token"];
    let put = ["put"];
    let subscriber = ["declare_subscriber"];
    let watch = ["declare_liveliness_subscriber", "liveliness_query"];
    let peers = options.peers.iter().map(|peer| (peer, peer.as_str()));
    for (host, behind) in peers.chain(options.routers.iter().map(|router| (router, "*"))) {
        subjects.push(json!({ "id": host, "cert_common_names": [host] }));
        allow("ingress", host, 1, &put, frame_key(realm, behind, name));
        allow("ingress", host, 2, &subscriber, frame_key(realm, "*", behind));
        allow("ingress", host, 3, &tokens, token_key(realm, behind, "*"));
        allow("ingress", host, 4, &watch, token_key(realm, "*", "*"));
        allow("egress", host, 1, &put, frame_key(realm, name, behind));
        allow("egress", host, 2, &subscriber, frame_key(realm, "*", name));
        allow("egress", host, 3, &tokens, token_key(realm, name, "*"));
        allow("egress", host, 4, &watch, token_key(realm, "*", "*"));
    }
    json!({
        "enabled": true, "default_permission": "deny",
        "rules": rules, "subjects": subjects, "policies": policies,
    })
}
