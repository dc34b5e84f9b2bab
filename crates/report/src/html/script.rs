//! The page's only script, and the policy that allows only this script to run: [`script`],
//! [`policy`].
//!
//! The script only adds exact figures under the pointer, and zoom. A script injected through a
//! hostile name has a different hash and does not run.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, PreEscaped, html};

const SCRIPT: &str = include_str!("script.js");

/// Returns the script element, for the end of the page.
pub(super) fn script() -> Markup {
    html! { script { (PreEscaped(SCRIPT)) } }
}

/// Returns the policy that forbids the page to fetch resources, and to run any script except
/// [`script`].
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
