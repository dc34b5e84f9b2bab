//! Tests of the report of a real run.

use crate::measure::RUN;

#[test]
fn report_pages_draw_all_results() {
    for (page, words) in [
        ("report.html", &["messages lost", "for scale", "What to choose here"][..]),
        ("report-death.html", &["class=\"survivors\"", "kills"]),
        ("report-messages.html", &["What round-trip is", "class=\"cdf\"", "data-name=\"memcpy\""]),
    ] {
        for word in words {
            assert!(RUN.file(page).contains(word), "{word} is missing in {page}");
        }
    }
    let results = RUN.results();
    let cells = || results["cells"].as_array().expect("cells").iter();
    let mut expected: Vec<f64> =
        cells().filter_map(|cell| cell["estimate"].as_f64()).filter(|it| *it != 0.0).collect();
    assert!(expected.len() > 10, "{}", expected.len());
    // Every estimate is drawn once, except zeroes, for which there is a sentence.
    let pages = ["report-death.html", "report-messages.html"].map(|page| RUN.file(page));
    let figures = pages.iter().flat_map(|page| page.split(" data-v=\"").skip(1));
    let figures = figures.map(|rest| rest.split('"').next().and_then(|it| it.parse().ok()));
    let mut drawn: Vec<f64> = figures.map(|figure| figure.expect("a number")).collect();
    drawn.retain(|figure| *figure != 0.0);
    for all in [&mut drawn, &mut expected] {
        all.sort_by(f64::total_cmp);
    }
    assert_eq!(drawn, expected);
    // `throughput` has several message sizes, which form a curve with a dot for each invocation.
    let curve = pages[1].split("<figure class=\"curve\"").nth(1).expect("a curve");
    let dots = curve.split("</figure>").next().map_or(0, |curve| curve.matches("h0").count());
    let streamed =
        cells().filter(|cell| cell["experiment"] == "throughput" && cell["status"] == "ok");
    let of_one_metric = streamed.filter(|cell| cell["metric"] == "message");
    let invocations = of_one_metric.filter_map(|cell| cell["invocations"].as_array()).map(Vec::len);
    assert_eq!(dots, invocations.sum::<usize>());
}
