//! Tests of the pages in a real browser: their content, requests and behaviour, with and without
//! scripts.

mod chromium;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};
use tontine_bench::fixture;
use tontine_bench::schema::Results;

use super::{OVERVIEW, file, pages};
use chromium::Chromium;

/// The pages of a run in a read-only folder.
struct PageFolder {
    folder: tempfile::TempDir,
}

impl PageFolder {
    fn of(results: &Results) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for page in pages(results) {
            let file = folder.path().join(page.name);
            fs::write(&file, page.html).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
        }
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
        Self { folder }
    }

    fn topic(&self, anchor: &str) -> PathBuf {
        self.folder.path().join(file(anchor))
    }

    fn all(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> =
            fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }
}

impl Drop for PageFolder {
    fn drop(&mut self) {
        let _ = fs::set_permissions(self.folder.path(), fs::Permissions::from_mode(0o755));
    }
}

fn sorted(mut figures: Vec<f64>) -> Vec<f64> {
    figures.sort_by(f64::total_cmp);
    figures
}

/// Returns the exact figures of all elements that match a selector, in order.
fn figures(browser: &mut Chromium, selector: &str) -> Vec<f64> {
    let found = browser
        .js(&format!("[...document.querySelectorAll('{selector}')].map(mark => +mark.dataset.v)"));
    sorted(found.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect())
}

/// Returns the screen positions of the mark centres on the first curve's first line, with the
/// marks' figures.
fn places(browser: &mut Chromium, section: &str) -> Vec<(f64, f64, f64)> {
    let found = browser.js(&format!(
        "[...document.querySelector('[aria-labelledby={section}] .curve')
            .querySelectorAll('.line.c0 .mark path')].map(path => {{
            const box = path.getBoundingClientRect();
            return [box.left + box.width / 2, box.top + box.height / 2, +path.parentNode.dataset.v];
        }})"
    ));
    let of = |row: &Value, at: usize| row[at].as_f64().unwrap();
    let rows = found.as_array().unwrap().iter();
    rows.map(|row| (of(row, 0), of(row, 1), of(row, 2))).collect()
}

const SIGNALS: &str = "experiment-signal-throughput";

#[test]
#[ignore = "takes long: drives a browser"]
fn pages_load_without_errors_or_requests_and_have_all_figures() {
    let Some(mut browser) = Chromium::start() else { return };
    let results = fixture::run();
    let folder = PageFolder::of(&results);
    let mut charted = Vec::new();
    for page in folder.all() {
        browser.open(&page);
        assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
        assert_eq!(browser.requests(), [format!("file://{}", page.display())]);
        // Rows of charts and, because a chart repeats none of them, points of curves.
        let own = figures(&mut browser, ".chart [data-v], .curve-grid .line .mark");
        charted.extend(own);
        for name in ["signal-throughput", "fork-throughput", "builds", "sessions"] {
            let shown = format!("document.querySelector('#experiment-{name}') !== null");
            if browser.js(&shown) == json!(true) {
                let cells = results.cells.iter().filter(|cell| cell.experiment == name);
                let mark = format!("[aria-labelledby=experiment-{name}] .curve-grid .line .mark");
                let estimates = cells.filter_map(|cell| cell.estimate).collect();
                assert_eq!(figures(&mut browser, &mark), sorted(estimates), "{name}");
            }
        }
    }
    // A sentence may replace figures that are zero.
    charted.retain(|figure| *figure != 0.0);
    let estimates = results.cells.iter().filter_map(|cell| cell.estimate);
    let estimates = estimates.filter(|estimate| *estimate != 0.0).collect();
    assert_eq!(sorted(charted), sorted(estimates));

    browser.open(&folder.topic("signals"));
    // On linear axes positions are proportional to figures: pairs horizontally, signals vertically.
    let at = places(&mut browser, SIGNALS);
    let [first, second, .., last] = &at[..] else { panic!("{at:?}") };
    let along = (second.0 - first.0) / (last.0 - first.0);
    assert!((along - 1.0 / 7.0).abs() < 0.01, "pairs 1, 2, 8: {at:?}");
    let up = (second.1 - first.1) / (last.1 - first.1);
    let expected = (second.2 - first.2) / (last.2 - first.2);
    assert!((up - expected).abs() < 0.01, "{at:?}");
    // Marks with more signals are higher up.
    assert!(first.2 > last.2 && first.1 < last.1, "{at:?}");
}

#[test]
#[ignore = "takes long: drives a browser"]
fn pointer_and_keys_show_exact_figures_and_zoom() {
    let Some(mut browser) = Chromium::start() else { return };
    let results = fixture::run();
    let page = PageFolder::of(&results);
    browser.open(&page.topic("signals"));
    browser.js(&format!(
        "document.documentElement.style.scrollBehavior = 'auto';
         window.figure = document.querySelector('[aria-labelledby={SIGNALS}] .curve');
         figure.scrollIntoView({{block: 'center'}}); 0"
    ));
    let shown = "getComputedStyle(document.querySelector('#tip')).visibility";
    assert_eq!(browser.text(shown), "hidden");
    let before = places(&mut browser, SIGNALS);
    browser.mouse("mouseMoved", before[1].0, before[1].1);
    browser.until(&format!("{shown} === 'visible'"));
    let tip = browser.text("document.querySelector('#tip').textContent");
    let cell = results
        .cells
        .iter()
        .find(|cell| cell.experiment == "signal-throughput" && cell.params["pairs"] == "2");
    let exact = tontine_bench::format::FormattedFigure::of_cell(cell.unwrap()).unwrap().in_line();
    assert!(tip.contains(&exact) && tip.contains("linux"), "{tip}, expected {exact}");

    // A drag selects a range.
    let area = browser.js("(box => [box.left, box.top, box.width])(
            figure.querySelector('.plot').getBoundingClientRect())");
    let area: Vec<f64> = (0..3).map(|at| area[at].as_f64().unwrap()).collect();
    let (left, right) = (area[0] + area[2] * 0.02, area[0] + area[2] * 0.5);
    browser.mouse("mousePressed", left, area[1] + 40.0);
    browser.mouse("mouseMoved", (left + right) / 2.0, area[1] + 40.0);
    browser.mouse("mouseMoved", right, area[1] + 40.0);
    browser.mouse("mouseReleased", right, area[1] + 40.0);
    browser.until("figure.matches('.zoomed')");
    let zoomed = places(&mut browser, SIGNALS);
    let apart = |at: &[(f64, f64, f64)]| at[1].0 - at[0].0;
    let times = apart(&zoomed) / apart(&before);
    assert!((times - 1.0 / 0.48).abs() < 0.1, "{times}");
    assert!(browser.number("figure.querySelectorAll('.axis .own').length") > 1.0);

    // Turn the wheel over a chart that has the focus.
    browser.js("figure.focus()");
    browser.js("window.first = figure.querySelector('.axis .own').outerHTML; 0");
    browser.mouse("mouseWheel", left, area[1] + 40.0);
    browser.until("figure.querySelector('.axis .own').outerHTML !== first");
    assert!(apart(&places(&mut browser, SIGNALS)) > apart(&zoomed) * 1.2);
    browser.key("Escape");
    assert_eq!(places(&mut browser, SIGNALS), before);
    browser.key("+");
    assert!(apart(&places(&mut browser, SIGNALS)) > apart(&before) * 1.2);
    browser.key("-");
    assert_eq!(browser.js("figure.matches('.zoomed')"), json!(false));
    browser.key("ArrowRight");
    browser.key("ArrowRight");
    assert_eq!(browser.text("document.querySelector('#tip').textContent"), tip);

    // Press the same keys on a chart with bars.
    browser.open(&page.topic("death"));
    browser.js("window.bars = document.querySelector(
             '[aria-labelledby=experiment-liveness-check] figure.chart');
         bars.scrollIntoView({block: 'center'}); bars.focus(); 0");
    browser.key("ArrowRight");
    browser.until("document.querySelector('#tip').textContent.length > 0");
    let tip = browser.text("document.querySelector('#tip').textContent");
    assert!(tip.starts_with("polling-thread: ") && tip.contains(" ns ("), "{tip}");
    let place = "parseFloat(bars.querySelectorAll('.estimate[data-v]')[6].getAttribute('x1'))";
    let before = browser.number(place);
    browser.key("+");
    assert!((browser.number(place) - before).abs() > 3.0);

    // The pointer over cumulative curves shows the share at that value.
    browser.js("document.documentElement.style.scrollBehavior = 'auto';
         window.shares = document.querySelector('figure[data-cdf]');
         shares.closest('details').open = true;
         shares.scrollIntoView({block: 'center'});
         requestAnimationFrame(() => requestAnimationFrame(() => window.drawn = true)); 0");
    // The browser finds the element under the pointer in the last frame that it drew.
    browser.until("window.drawn === true");
    let area = browser.js("(box => [box.left, box.top, box.width, box.height])(
            shares.querySelector('.curves').getBoundingClientRect())");
    let area: Vec<f64> = (0..4).map(|at| area[at].as_f64().unwrap()).collect();
    browser.mouse("mouseMoved", area[0] + area[2] * 0.5, area[1] + area[3] * 0.5);
    browser.until("/^.+: \\d+ % at or below /.test(document.querySelector('#tip').textContent)");
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

#[test]
#[ignore = "takes long: drives a browser"]
fn pages_without_scripts_show_ladder_answers_and_charts() {
    let Some(mut browser) = Chromium::start() else { return };
    let results = fixture::run();
    let folder = PageFolder::of(&results);
    browser.call("Emulation.setScriptExecutionDisabled", json!({"value": true}));
    for (page, parts) in [
        (
            folder.folder.path().join(OVERVIEW),
            &[
                (".rung:not(.head) .track", 8.0),
                (".headlines li", 4.0),
                (".answers > li", 4.0),
                (".pages a", 8.0),
            ][..],
        ),
        (folder.topic("death"), &[("table.survivors tbody tr", 5.0), (".chart .track", 8.0)]),
        (folder.topic("signals"), &[("figure.curve .plot", 2.0)]),
    ] {
        browser.open(&page);
        assert_eq!(browser.js("document.querySelector('#tip')"), Value::Null, "a script ran");
        for (selector, fewest) in parts {
            let visible = browser.number(&format!(
                "[...document.querySelectorAll('{selector}')].filter(part =>
                    part.checkVisibility() && part.getBoundingClientRect().height > 10).length"
            ));
            assert!(visible >= *fewest, "{selector}: {visible}");
        }
    }
}

/// A reader must find the answers without scrolling far: four screens of 1280 × 800.
#[test]
#[ignore = "takes long: drives a browser"]
fn overview_fits_on_four_screens() {
    let Some(mut browser) = Chromium::start() else { return };
    let folder = PageFolder::of(&fixture::run());
    let screen = json!({"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": false});
    browser.call("Emulation.setDeviceMetricsOverride", screen);
    browser.open(&folder.folder.path().join(OVERVIEW));
    let height = browser.number("document.documentElement.scrollHeight");
    assert!(height <= 3200.0, "{height}");
}

#[test]
#[ignore = "takes long: drives a browser"]
fn narrow_pages_scroll_vertically_and_have_accessible_names() {
    let Some(mut browser) = Chromium::start() else { return };
    let folder = PageFolder::of(&fixture::run());
    let screen = json!({"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": true});
    browser.call("Emulation.setDeviceMetricsOverride", screen);
    let mut images = Vec::new();
    for page in folder.all() {
        browser.open(&page);
        browser.js("document.querySelectorAll('details').forEach(part => part.open = true)");
        let beyond = browser.js(
            "[...document.querySelectorAll('body *')].filter(part =>
                part.getBoundingClientRect().right > 361 &&
                !part.closest('.scroll, nav, svg, #tip')).map(part => part.outerHTML.slice(0, 80))",
        );
        assert_eq!(beyond, json!([]), "{}", page.display());
        for width in ["innerWidth", "document.documentElement.scrollWidth"] {
            assert_eq!(browser.number(width), 360.0, "{width} of {}", page.display());
        }
        let tree = browser.call("Accessibility.getFullAXTree", json!({}));
        let nodes = tree["nodes"].as_array().unwrap();
        let named = |role: &str| -> Vec<String> {
            let of = nodes.iter().filter(|node| node["role"]["value"] == role);
            of.filter(|node| node["ignored"] == false)
                .map(|node| node["name"]["value"].as_str().unwrap_or_default().to_owned())
                .collect()
        };
        assert_eq!(named("main").len(), 1);
        assert_eq!(named("navigation"), ["Contents"]);
        assert!(named("heading").len() > 2);
        for role in ["table", "image"] {
            let found = named(role);
            let short = found.iter().filter(|name| name.len() < 6).count();
            assert_eq!(short, 0, "{role}: {short} of {} have no name", found.len());
        }
        images.extend(named("image"));
    }
    let image = |start: &str| images.iter().find(|name| name.starts_with(start));
    let curve = image("Curve of Signals per second").unwrap();
    assert!(curve.contains("linux: at 1 ") && curve.contains("at 8 "), "{curve}");
    assert!(image("Ladder of latencies").unwrap().contains("pipe: "));
    assert!(image("Cumulative distributions of ").unwrap().contains("median "));
    assert!(image("Chart of One-way latency").is_some());
}

#[test]
#[ignore = "takes long: drives a browser"]
fn hostile_name_is_escaped_and_other_scripts_are_blocked() {
    let Some(mut browser) = Chromium::start() else { return };
    let mut results = fixture::run();
    let hostile = "<img src=x onerror='window.evil=1'><script>window.evil=1</script>";
    for cell in &mut results.cells {
        if cell.experiment == "signal-throughput" {
            cell.variant = hostile.into();
        }
    }
    let page = PageFolder::of(&results);
    browser.open(&page.topic("signals"));
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
    assert_eq!(browser.requests().len(), 1, "{:?}", browser.requests());
    let name = format!("document.querySelector('[aria-labelledby={SIGNALS}] .line').dataset.name");
    assert_eq!(browser.text(&name), hostile);
    browser.js("const other = document.createElement('script');
         other.textContent = 'window.evil = 1'; document.body.append(other); 0");
    assert_eq!(browser.js("typeof window.evil"), json!("undefined"));
    assert!(browser.events.iter().any(|event| event.to_string().contains("Content Security")));
}
