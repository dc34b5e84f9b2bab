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

/// Returns the estimates in the charts and curves of the open page.
fn estimates(browser: &mut Chromium) -> Vec<f64> {
    let drawn = browser
        .js("[...document.querySelectorAll('.chart [data-v], .curve-grid [data-v]')]
            .map(mark => +mark.dataset.v)");
    let drawn = drawn.as_array().expect("marks").iter();
    drawn.map(|mark| mark.as_f64().expect("a number")).collect()
}

#[test]
#[ignore = "takes long: measures and drives a browser"]
fn report_pages_draw_all_results() {
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

    // The overview has the ladder, the other pages have the figures.
    let open = |browser: &mut Chromium, name: &str| {
        browser.open(&folder.path().join(name));
        assert!(browser.complaints().is_empty(), "{name}: {:?}", browser.complaints());
        assert_eq!(browser.requests().len(), 1, "{name}: {:?}", browser.requests());
    };
    open(&mut browser, "report.html");
    let text = browser.text("document.body.innerText");
    for word in ["eventfd", "messages lost", "not tested", "What to choose here"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    open(&mut browser, "report-death.html");
    let mut drawn = estimates(&mut browser);
    let survivors = browser.text("document.querySelector('table.survivors').innerText");
    assert!(survivors.contains("pipe") && survivors.contains("kills"), "{survivors}");
    open(&mut browser, "report-messages.html");
    drawn.extend(estimates(&mut browser));
    assert!(browser.text("document.body.innerText").contains("What round-trip is"));
    assert!(
        browser.number("document.querySelectorAll('.cdf .cumulative[data-name]').length") > 2.0
    );

    // Every estimate is drawn once, except zeroes, for which there is a sentence.
    let cells = || results["cells"].as_array().expect("cells").iter();
    let mut expected: Vec<f64> = cells()
        .filter_map(|cell| cell["estimate"].as_f64())
        .filter(|figure| *figure != 0.0)
        .collect();
    expected.sort_by(f64::total_cmp);
    drawn.retain(|figure| *figure != 0.0);
    drawn.sort_by(f64::total_cmp);
    assert!(expected.len() > 10, "{}", expected.len());
    assert_eq!(drawn, expected);

    // `throughput` has several message sizes, which form a curve with a dot for each invocation.
    let on_curves = browser.number(
        "[...document.querySelectorAll('.curve .ran')]
            .map(path => path.getAttribute('d').split('h0').length - 1).reduce((a, b) => a + b, 0)",
    );
    let streamed =
        cells().filter(|cell| cell["experiment"] == "throughput" && cell["status"] == "ok");
    let streamed: usize =
        streamed.map(|cell| cell["invocations"].as_array().map_or(0, Vec::len)).sum();
    assert_eq!(on_curves, streamed as f64);

    // The pointer shows a tip, and Escape removes it.
    browser.js("document.documentElement.style.scrollBehavior = 'auto';
         window.curve = document.querySelector('.curve');
         curve.scrollIntoView({block: 'center'});
         window.mark = curve.querySelector('.line .mark path').getBoundingClientRect(); 0");
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
