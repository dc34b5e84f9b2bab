//! The only script of a page, and the policy that allows only this script to run: [`PageScript`].
//!
//! The script only adds exact figures under the pointer, and zoom. A script injected through a
//! hostile name has a different hash and does not run. A page without charts has no script.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, PreEscaped, html};

const SCRIPT: &str = include_str!("script.js");

/// The script of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageScript {
    /// The page runs no script.
    None,
    /// Zoom and hover for charts.
    Charts,
}

impl PageScript {
    /// Returns the script element, for the end of the page.
    pub(super) fn element(self) -> Markup {
        html! { @if self == Self::Charts { script { (PreEscaped(SCRIPT)) } } }
    }

    /// Returns the policy that forbids the page to fetch resources, and to run any script except
    /// [`Self::element`].
    pub(super) fn policy(self) -> &'static str {
        static POLICY: LazyLock<[String; 2]> = LazyLock::new(|| {
            let hash = STANDARD.encode(hmac_sha256::Hash::hash(SCRIPT.as_bytes()));
            ["'none'".to_owned(), format!("'sha256-{hash}'")].map(|source| {
                format!(
                    "default-src 'none'; script-src {source}; style-src 'unsafe-inline'; \
                     base-uri 'none'; form-action 'none'"
                )
            })
        });
        &POLICY[usize::from(self == Self::Charts)]
    }
}
