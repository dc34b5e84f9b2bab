//! The figures of the sources that print no numbers: [`drawn`], what stands along their axes and
//! what their curves look like.
//!
//! Only the shape is told, in words; no point is invented. Neighbour: [`super::plot`].

/// A figure of a source, as far as it can be told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paper {
    experiment: &'static str,
    /// The metric that it shows: others of the experiment are no figure of the source.
    metric: &'static str,
    /// Its number and its caption.
    pub(super) caption: &'static str,
    /// What goes along.
    pub(super) along: &'static str,
    /// What goes up.
    pub(super) up: &'static str,
    /// The shape of its curves.
    pub(super) shape: &'static str,
}

/// The figure that a metric of an experiment repeats; none where its source has none.
pub(super) fn drawn(experiment: &str, metric: &str) -> Option<&'static Paper> {
    PAPERS.iter().find(|paper| paper.experiment == experiment && paper.metric == metric)
}

const PAPERS: &[Paper] = &[
    Paper {
        experiment: "signal-throughput",
        metric: "received",
        caption: "Figure 1: signal deliveries per process per second",
        along: "pairs of processes, one sending, one receiving",
        up: "signals per process per second",
        shape: "The kernel with parallel signals stays level up to five pairs on ten processors, \
                one for each process, and falls beyond, where processes have to take turns. The \
                old kernel, in which all of it runs on one master processor, falls as 1/pairs \
                from the start.",
    },
    Paper {
        experiment: "fork-throughput",
        metric: "forked",
        caption: "Figure 2: forks completed per process per second",
        along: "processes that fork at once, 50 forks each",
        up: "forks per process per second",
        shape: "Both kernels fall with more processes, the old one sooner. The gain is smaller \
                than with signals, because most of a fork is the making of an address space, \
                which is not what was made parallel; one process alone is not slower for the \
                added locks.",
    },
    Paper {
        experiment: "builds",
        metric: "build",
        caption: "Figure 3: elapsed time for multiple builds",
        along: "builds at once, each of about 10,000 lines of C",
        up: "elapsed seconds per build",
        shape: "The time of a build rises with their number, in the new kernel more slowly; at \
                the right it bends upward, which the paper lays to the one disk that all builds \
                share.",
    },
    Paper {
        experiment: "sessions",
        metric: "iteration",
        caption: "Figure 4: elapsed time for multiple pseudo-user sessions",
        along: "pseudo-users at once",
        up: "elapsed seconds per iteration",
        shape: "Both curves rise unevenly, because each session begins after a delay of its own; \
                the new kernel's has about the shape of the old one's and lies below it \
                throughout.",
    },
];
