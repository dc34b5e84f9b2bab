//! Tests of the curves and their verdicts.

use tontine_bench::engine::invoked::{InvocationFigures, MetricSummary};
use tontine_bench::observe::Series;
use tontine_bench::peer::in_a_process_of_its_own;

use super::*;
use crate::as_published::points::{MeasurePoint, in_this_process, with_points};
use crate::as_published::{find, measure_here};

#[test]
fn each_curve_has_exactly_the_papers_levels() {
    for curve in &CURVES {
        let papers: Vec<u64> = (1..=curve.last_level).collect();
        for variant in [OLD.variant, NEW.variant, curve.linux] {
            let name = format!("{}, {variant}", curve.title);
            let tasks = tasks(curve, variant);
            assert!(tasks.keys().copied().eq(papers.iter().copied()), "{name}");
            for (level, task) in tasks {
                assert_eq!(task.params[curve.level], level.to_string(), "{name}");
                let papers =
                    task.params.get(PAPERS_MACHINE.0).is_some_and(|at| at == PAPERS_MACHINE.1);
                assert_eq!(papers, variant != curve.linux, "{name}");
            }
        }
    }
}

/// Draws the second figure with these points, and checks its text.
fn checks_figure(measure: &mut MeasurePoint<'_>) -> std::result::Result<(), String> {
    let (_, text) = with_points("001", measure, |points| draw(&CURVES[1], None, 3, points));
    let bars = text.lines().filter(|line| line.ends_with('#'));
    let levels: Vec<&str> = bars.filter_map(|line| line.split_whitespace().next()).collect();
    // Levels of the old kernel, the new kernel and this machine's kernel.
    let modelled = ["1", "2", "3", "4", "5", "6", "7"];
    let whole = levels == [&modelled[..], &modelled[..], &["1", "2", "4*"]].concat()
        && text.contains("\nold kernel (`master`, ")
        && text.contains("\nnew kernel (`parallel`, ")
        && text.contains("\nnew kernel / old kernel, by level: 1: ")
        && text.starts_with("\nFigure 2: Forks Completed per Process per Second\n")
        && text.contains("processes forks/s per process\n")
        && text.contains("\nThe paper: ")
        && text.lines().all(|line| line.chars().count() <= 80)
        && !text.contains("failed")
        && !text.contains("skipped");
    if whole { Ok(()) } else { Err(text) }
}

#[test]
fn figure_prints_bar_per_level_and_marks_crowded_levels() {
    checks_figure(&mut ones).expect("a figure");
}

#[test]
#[ignore = "takes long: forks at every level"]
fn figure_of_measured_forks_has_bar_per_level() {
    in_a_process_of_its_own(|| {
        checks_figure(&mut |task| measure_here(task).map(InvocationFigures::of))
    });
}

#[test]
fn unmeasurable_curve_prints_its_reason() {
    let stranger = PublishedCurve { experiment: "pigeons", ..CURVES[0] };
    let (_, text) = in_this_process("001", |points| draw(&stranger, None, 2, points));
    assert!(text.contains("       1  failed: no experiment is named pigeons\n"), "{text}");
    assert!(text.contains("The paper: ") && !text.contains('#'), "{text}");
}

/// Returns a figure of 1 for each metric that the reproduction reads.
fn ones(_: &InvocationTask) -> Result<InvocationFigures> {
    let metrics = ["received", "forked", "build", "iteration", "create_join"].into_iter();
    let mut series: Vec<Series> = metrics.map(|metric| Series::ns(metric, vec![1.0])).collect();
    series.push(Series::ns("waited", vec![1.0]).at("lock", "proc_relation_lock"));
    let figures = series.iter().map(MetricSummary::of).collect();
    let locks = r#"{"proc_relation_lock":{"acquisitions":9,"waited":1,"blocked":0,
                   "longest_hold_ns":1}}"#;
    let (ratios, tried, maps) = Default::default();
    Ok(InvocationFigures { figures, ratios, tried, notes: vec![locks.to_owned()], maps })
}

/// Otherwise the progress and the time left would be wrong.
#[test]
fn number_of_points_does_not_depend_on_their_results() {
    for quick in [true, false] {
        let source = find("001").expect("it is there");
        let expected = source.seconds(quick);
        let mut measured = 0;
        let mut out = Vec::new();
        source
            .reproduce(quick, &mut out, &mut |task| {
                measured += 1;
                ones(task)
            })
            .expect("a vector can be written");
        assert_eq!(measured, expected.len());
        assert!(expected.iter().all(|seconds| *seconds > 0.0), "{expected:?}");
        let text = String::from_utf8(out).expect("UTF-8");
        assert!(text.contains("\nVerdicts on the source's claims"), "{text}");
        assert!(!text.contains("a point of it was not measured"), "{text}");
    }
}

#[test]
fn claims_of_unmeasured_points_are_not_comparable() {
    let mut out = Vec::new();
    let source = find("001").expect("it is there");
    source
        .reproduce(true, &mut out, &mut |_| Err(MeasureError::skip("no processor")))
        .expect("a vector can be written");
    let text = String::from_utf8(out).expect("UTF-8");
    let (_, verdicts) = text.split_once("\nVerdicts").expect("verdicts");
    assert!(
        !verdicts.contains("reproduced:") && !verdicts.contains("not reproduced"),
        "{verdicts}"
    );
}
