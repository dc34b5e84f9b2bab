//! Tests of the page in a real browser: its content, its requests and its behaviour, with and
//! without scripts.

mod chromium;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};
use tontine_bench::fixture;
use tontine_bench::observe::Statistic;
use tontine_bench::schema::{Cell, Results, Status};

use super::page;
use chromium::Chromium;

/// A page in a read-only folder.
struct PageFolder {
    folder: tempfile::TempDir,
}

impl PageFolder {
    fn of(results: &Results) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report.html");
        fs::write(&file, page(results, &results.to_json().unwrap())).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
        Self { folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("report.html")
    }
}

impl Drop for PageFolder {
    fn drop(&mut self) {
        let _ = fs::set_permissions(self.folder.path(), fs::Permissions::from_mode(0o755));
    }
}

/// Returns, in order, the figures for which a chart of `cells` has a dot.
fn dots<'a>(cells: impl Iterator<Item = &'a Cell>) -> Vec<f64> {
    let figures = cells.filter(|cell| cell.status == Status::Ok).flat_map(|cell| {
        cell.invocations.iter().map(|one| match cell.statistic {
            Statistic::Median => one.summary.median,
            Statistic::Mean => one.summary.mean,
        })
    });
    sorted(figures.collect())
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
            .querySelectorAll('.line.c0 .point .mark path')].map(path => {{
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
fn page_loads_without_errors_or_requests_and_has_all_figures() {
    let Some(mut browser) = Chromium::start() else { return };
    let results = fixture::run();
    let page = PageFolder::of(&results);
    browser.open(&page.file());
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
    let requests = browser.requests();
    assert_eq!(requests, [format!("file://{}", page.file().display())]);

    // Every cell is a row of one chart, and every invocation is a dot in it.
    assert_eq!(figures(&mut browser, ".chart .dot[data-v]"), dots(results.cells.iter()));
    let estimates = results.cells.iter().filter_map(|cell| cell.estimate).collect();
    assert_eq!(figures(&mut browser, ".chart [data-v]:not(.dot)"), sorted(estimates));
    for name in ["signal-throughput", "fork-throughput", "builds", "sessions"] {
        let cells = || results.cells.iter().filter(|cell| cell.experiment == name);
        let dot = format!("[aria-labelledby=experiment-{name}] .curve .dot");
        assert_eq!(figures(&mut browser, &dot), dots(cells()), "{name}");
        let mark = format!("[aria-labelledby=experiment-{name}] .curve .point .mark");
        let estimates = cells().filter_map(|cell| cell.estimate).collect();
        assert_eq!(figures(&mut browser, &mark), sorted(estimates), "{name}");
    }

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
fn pointer_and_keys_show_exact_figures_and_zoom() {
    let Some(mut browser) = Chromium::start() else { return };
    let results = fixture::run();
    let page = PageFolder::of(&results);
    browser.open(&page.file());
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

    // Press the same keys on a chart with bars, and on the distributions of samples.
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
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

#[test]
fn page_without_scripts_shows_verdict_tables_and_charts() {
    let Some(mut browser) = Chromium::start() else { return };
    let results = fixture::run();
    let page = PageFolder::of(&results);
    browser.call("Emulation.setScriptExecutionDisabled", json!({"value": true}));
    browser.open(&page.file());
    assert_eq!(browser.js("document.querySelector('#tip')"), Value::Null, "a script ran");
    for (selector, fewest) in [
        (".verdict > ul li", 5.0),
        ("table.decisions tbody tr", 4.0),
        ("table.survivors tbody tr", 5.0),
        ("figure.curve .plot", 6.0),
        (".chart .track", 30.0),
    ] {
        let visible = browser.number(&format!(
            "[...document.querySelectorAll('{selector}')].filter(part =>
                part.checkVisibility() && part.getBoundingClientRect().height > 10).length"
        ));
        assert!(visible >= fewest, "{selector}: {visible}");
    }
    // The style sheet shows a linked page alone; the link "everything" shows all pages again.
    let pages = "[...document.querySelectorAll('main > .page')]
        .filter(page => page.checkVisibility()).map(page => page.querySelector('h2').id).join()";
    let all = browser.text(pages);
    assert!(all.starts_with("verdict,messages,death,signals"), "{all}");
    assert!(all.ends_with("machine,method,data"), "{all}");
    for (anchor, expected) in [("signals", "signals"), ("experiment-survival", "death")] {
        browser.js(&format!("location.hash = '#{anchor}'"));
        assert_eq!(browser.text(pages), expected);
    }
    browser.js("location.hash = '#all'");
    assert_eq!(browser.text(pages), all);
}

#[test]
fn narrow_page_scrolls_vertically_and_has_accessible_names() {
    let Some(mut browser) = Chromium::start() else { return };
    let page = PageFolder::of(&fixture::run());
    let screen = json!({"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": true});
    browser.call("Emulation.setDeviceMetricsOverride", screen);
    browser.open(&page.file());
    browser.js("document.querySelectorAll('details').forEach(part => part.open = true)");
    let beyond = browser.js("[...document.querySelectorAll('body *')].filter(part =>
            part.getBoundingClientRect().right > 361 &&
            !part.closest('.scroll, nav, svg, #tip')).map(part => part.outerHTML.slice(0, 80))");
    assert_eq!(beyond, json!([]));
    for width in ["innerWidth", "document.documentElement.scrollWidth"] {
        assert_eq!(browser.number(width), 360.0, "{width}");
    }

    let tree = browser.call("Accessibility.getFullAXTree", json!({}));
    let nodes = tree["nodes"].as_array().unwrap();
    let named = |role: &str| -> Vec<&str> {
        let of = nodes.iter().filter(|node| node["role"]["value"] == role);
        of.filter(|node| node["ignored"] == false)
            .map(|node| node["name"]["value"].as_str().unwrap_or_default())
            .collect()
    };
    for (role, names) in [
        ("main", &[][..]),
        ("navigation", &["Contents"]),
        ("heading", &["The verdict", "What to choose here", "Signals", "signal-throughput"]),
    ] {
        let found = named(role);
        assert!(!found.is_empty(), "{role}");
        assert!(names.iter().all(|name| found.contains(name)), "{role}: {found:?}");
    }
    for role in ["table", "image", "figure"] {
        let found = named(role);
        assert!(found.len() > 5, "{role}: {found:?}");
        let short: Vec<&&str> = found.iter().filter(|name| name.len() < 6).collect();
        assert!(short.is_empty(), "{role}: {} of {} have no name", short.len(), found.len());
    }
    let curve =
        named("image").into_iter().find(|name| name.starts_with("Curve of Signals per second"));
    assert!(curve.is_some_and(|name| name.contains("linux: at 1 ") && name.contains("at 8 ")));
}

#[test]
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
    browser.open(&page.file());
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
    assert_eq!(browser.requests().len(), 1, "{:?}", browser.requests());
    let name = format!("document.querySelector('[aria-labelledby={SIGNALS}] .line').dataset.name");
    assert_eq!(browser.text(&name), hostile);
    browser.js("const other = document.createElement('script');
         other.textContent = 'window.evil = 1'; document.body.append(other); 0");
    assert_eq!(browser.js("typeof window.evil"), json!("undefined"));
    assert!(browser.events.iter().any(|event| event.to_string().contains("Content Security")));
}
