//! Tests of the report of a real run, in a real browser.

#[path = "../../../report/src/html/browser/chromium.rs"]
mod chromium;

use std::fs;
use std::process::Command;

use serde_json::Value;

use chromium::Chromium;

/// Variants that take little time and yield curves, shares and kills.
const MEASURED: [&str; 5] = [
    "round-trip/pipe",
    "round-trip/eventfd",
    "survival/pipe",
    "throughput/memcpy",
    "liveness-check/futex-word",
];

#[test]
fn report_page_draws_all_results() {
    let Some(mut browser) = Chromium::start() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_tontine"))
        .args(["measure", "--quick", "--invocations", "6", "--out"])
        .arg(folder.path())
        .args(MEASURED)
        .output()
        .expect("tontine runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read(folder.path().join("results.json")).expect("results.json");
    let results: Value = serde_json::from_slice(&text).expect("valid JSON");

    browser.open(&folder.path().join("report.html"));
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
    assert_eq!(browser.requests().len(), 1, "{:?}", browser.requests());
    let cells = results["cells"].as_array().expect("cells").iter();
    let mut expected: Vec<f64> = cells
        .filter(|cell| cell["status"] == "ok")
        .flat_map(|cell| {
            let figure = cell["statistic"].as_str().expect("a statistic");
            let ran = cell["invocations"].as_array().expect("invocations").iter();
            ran.map(move |one| one[figure].as_f64().expect("a figure"))
        })
        .collect();
    let drawn = browser
        .js("[...document.querySelectorAll('.chart .dot[data-v]')].map(dot => +dot.dataset.v)");
    let drawn = drawn.as_array().expect("dots").iter();
    let mut drawn: Vec<f64> = drawn.map(|dot| dot.as_f64().expect("a number")).collect();
    expected.sort_by(f64::total_cmp);
    drawn.sort_by(f64::total_cmp);
    assert!(expected.len() > 50, "{}", expected.len());
    assert_eq!(drawn, expected);

    // `throughput` has several message sizes, which form a curve that shows the same dots again.
    let on_curves = browser.number("document.querySelectorAll('.curve .dot').length");
    let streamed = results["cells"].as_array().expect("cells").iter();
    let streamed =
        streamed.filter(|cell| cell["experiment"] == "throughput" && cell["status"] == "ok");
    let streamed: usize =
        streamed.map(|cell| cell["invocations"].as_array().map_or(0, Vec::len)).sum();
    assert_eq!(on_curves, streamed as f64);
    let survivors = browser.text("document.querySelector('table.survivors').innerText");
    assert!(survivors.contains("pipe") && survivors.contains("kills"), "{survivors}");
    assert!(browser.text("document.body.innerText").contains("What round-trip is"));

    // The pointer shows a tip, and Escape removes it.
    browser.js("document.documentElement.style.scrollBehavior = 'auto';
         window.curve = document.querySelector('.curve');
         curve.scrollIntoView({block: 'center'});
         window.mark = curve.querySelector('.point .mark path').getBoundingClientRect(); 0");
    let (x, y) = (
        browser.number("mark.left + mark.width / 2"),
        browser.number("mark.top + mark.height / 2"),
    );
    browser.mouse("mouseMoved", x, y);
    browser.until("document.querySelector('#tip').textContent.startsWith('memcpy')");
    browser.js("curve.focus()");
    browser.key("Escape");
    browser.until("document.querySelector('#tip').textContent === ''");
}
