//! What a test takes out of the kernel or breaks in it: a protection ([`Mutation`]), or one of the
//! semantics ([`Rule`]).
//!
//! Builds without debug assertions and without the feature `mutations` know the answers when they
//! are compiled, and nothing of this is left.

use tontine_unix::Errno;

use super::Kernel;
use crate::mutation::Mutation;
use crate::rule::Rule;

impl Kernel {
    /// Whether a protection is to be left out.
    #[inline(always)]
    pub(crate) fn mutates(&self, mutation: Mutation) -> bool {
        #[cfg(any(debug_assertions, feature = "mutations"))]
        let mutated = self.config.mutation == Some(mutation);
        #[cfg(not(any(debug_assertions, feature = "mutations")))]
        let mutated = {
            let _ = mutation;
            false
        };
        mutated
    }

    /// Whether to act by a rule, which is asked where it makes a difference.
    #[inline(always)]
    pub(crate) fn follows(&self, rule: Rule) -> bool {
        #[cfg(any(debug_assertions, feature = "mutations"))]
        let follows = {
            let rules = &self.config.rules;
            if let Some(hits) = &rules.hits {
                hits.add(rule);
            }
            rules.broken != Some(rule)
        };
        #[cfg(not(any(debug_assertions, feature = "mutations")))]
        let follows = {
            let _ = rule;
            true
        };
        follows
    }

    /// What a call is refused with by a rule. Where the rule is broken that is another error, which
    /// no call here has.
    pub(crate) fn error_by(&self, rule: Rule, errno: Errno) -> Errno {
        if self.follows(rule) { errno } else { Errno::ENOSYS }
    }
}
