//! The method behind the figures of this report: [`method`].
//!
//! The text describes the formulas of [`tontine_bench::stats`] and must match them.

use maud::{Markup, html};

pub(super) fn method() -> Markup {
    html! {
        section.method aria-labelledby="method" {
            h2 #method { "The method" }
            (unit())
            (median())
            (mean())
            (naive())
            (others())
        }
    }
}

fn unit() -> Markup {
    html! {
        h3 { "The unit is an invocation" }
        p {
            "Each cell is measured in several fresh processes, with a new address layout and new "
            "children. Samples taken one after another in one process share its circumstances: "
            "where its pages lie, on which processor it runs, how warm the machine is. They tell "
            "much about that process and little about the next. So a process counts as one "
            "observation, however many samples it took. All loops are closed: an operation begins "
            "when the one before has ended. The cells take turns in randomised blocks, so that a "
            "drift of the machine affects all of them alike."
        }
    }
}

fn median() -> Markup {
    html! {
        h3 { "Estimate and interval" }
        p {
            "An invocation yields one figure: its median, or its mean for shares and rates. The "
            "estimate is the median of these figures. Its interval needs no assumption about "
            "their distribution: of " var { "n" } " figures, the interval from the "
            var { "k" } "th smallest to the " var { "k" }
            "th largest contains the true median with probability"
        }
        p.formula {
            "1 − 2 · " var { "P" } "(" var { "B" } " < " var { "k" } "),  "
            var { "B" } " binomial with " var { "n" } " and ½"
        }
        p {
            "and " var { "k" } " is the largest for which this is at least 95 %. Six invocations "
            "give their smallest and largest (96.9 %), ten the second and ninth (97.9 %), twenty "
            "the sixth and fifteenth (95.9 %). p99 is treated in the same way: it is the median "
            "of the invocations' 99th percentiles, which is not the 99th percentile of all "
            "samples. If an invocation takes seconds, there are fewer than six, and no interval "
            "between two of them contains the median with 95 %: the row shows the mean with the "
            "interval below, and says so."
        }
        p {
            "A share is that of all tries of all invocations. The variance between the "
            "invocations' shares determines the number of independent tries to which these are "
            "equivalent, reduced by the factor ("
            var { "z" } sub { "0.975" } " ∕ " var { "t" } sub { "0.975, " var { "n" } " − 1" } ")"
            sup { "2" }
            " because that variance is uncertain; the interval is Clopper and Pearson's for as "
            "many tries (Korn and Graubard, 1998), and lies within 0 and 1. If no try or every try "
            "is in the share, the row shows the count and the end of the interval: none of "
            var { "n" } " tries excludes every share above 1 − 0.025" sup { "1 ∕ " var { "n" } }
            ", about 3.7 ∕ " var { "n" } ", if the tries are independent of each other."
        }
    }
}

fn mean() -> Markup {
    html! {
        h3 { "The mean" }
        p {
            "Its interval is that of Kalibera and Jones, from the means of the invocations at the "
            "top level:"
        }
        p.formula {
            var { "ȳ" } " ± " var { "t" } sub { "0.975, " var { "n" } " − 1" } " · √("
            var { "S" } sup { "2" }
            " ∕ " var { "n" } ")"
        }
        p {
            "with " var { "S" } sup { "2" } " the variance of the invocations' means. No time, "
            "rate or number is negative, so the interval ends at zero if it would reach further; "
            "that does not change how often it contains the mean."
        }
    }
}

fn naive() -> Markup {
    html! {
        h3 { "The usual interval, and why it fails" }
        p { "Benchmarks often print" }
        p.formula {
            var { "x̄" } " ± 1.96 · " var { "s" } " ∕ √" var { "N" }
        }
        p {
            "over " var { "N" } " consecutive samples. It assumes that each of them is "
            "independent of the one before. They are not, and a million of them make an interval "
            "so narrow that the next run of the same program lies outside it. The trimmed mean in "
            "the tables omits samples beyond 1.5 interquartile ranges of the quartiles, as "
            "published figures often do; trust the estimate instead."
        }
    }
}

fn others() -> Markup {
    html! {
        h3 { "The other figures" }
        p {
            "The floor is the smallest sample of all; no interval can be given for a minimum. A "
            "ratio is the median over pairs taken in the same block, with the interval of the "
            "sign test. A row marked unstable gives the reason: its samples drift, depend on each "
            "other, or have two modes. A row without a figure was skipped because the machine "
            "lacks a requirement, or failed; both give the reason. A published figure comes from "
            "another machine and another year: compare orders of magnitude."
        }
    }
}
