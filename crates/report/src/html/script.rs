//! The page's one script, and the policy that lets it run and nothing else: [`script`], [`policy`].
//!
//! It only adds: exact figures under the pointer, and zoom. Whatever a hostile name might smuggle
//! in has another hash.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, PreEscaped, html};

const SCRIPT: &str = include_str!("script.js");

/// The script, to stand at the end of the page.
pub(super) fn script() -> Markup {
    html! { script { (PreEscaped(SCRIPT)) } }
}

/// Forbids the page to fetch anything, and to run anything but [`script`].
pub(super) fn policy() -> &'static str {
    static POLICY: LazyLock<String> = LazyLock::new(|| {
        let hash = STANDARD.encode(hmac_sha256::Hash::hash(SCRIPT.as_bytes()));
        format!(
            "default-src 'none'; script-src 'sha256-{hash}'; style-src 'unsafe-inline'; \
             img-src data:; base-uri 'none'; form-action 'none'"
        )
    });
    &POLICY
}
