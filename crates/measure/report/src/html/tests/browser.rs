//! The layout of the pages in a real browser.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::super::{OVERVIEW, file};
use super::PAGES;

/// Names under which to search for the executable.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Shows a copy of a page in a frame of this size and returns the value of a JavaScript expression
/// on it; `None` if no browser is installed.
fn shown(page: &str, (width, height): (u32, u32), expression: &str) -> Option<Value> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |name: &&str| std::env::split_paths(&paths).any(|path| path.join(name).is_file());
    let Some(browser) = NAMES.into_iter().find(is_there) else {
        println!("skipped: no chromium");
        return None;
    };
    let script = format!(
        "<script>addEventListener('load', () => {{
             const found = parent.document.createElement('pre');
             found.textContent = JSON.stringify({expression});
             parent.document.body.append(found);
         }});</script></body>"
    );
    // The page's own policy forbids scripts.
    let page = page.replace("http-equiv=\"Content-Security-Policy\"", "name=\"policy\"");
    let page = json!(page.replace("</body>", &script)).to_string().replace("</", "<\\/");
    let frame = format!(
        "<body><iframe style=\"width: {width}px; height: {height}px; border: 0\"></iframe>
         <script>document.querySelector('iframe').srcdoc = {page}</script>"
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("frame.html");
    fs::write(&path, frame).unwrap();
    let mut command = Command::new(browser);
    command.args(["--headless", "--disable-gpu", "--no-first-run", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", folder.path().display()));
    if rustix::process::geteuid().is_root() {
        command.arg("--no-sandbox");
    }
    let output = command.arg(format!("file://{}", path.display())).output().unwrap();
    let dom = String::from_utf8(output.stdout).unwrap();
    let (_, found) = dom.rsplit_once("<pre>").unwrap_or_else(|| panic!("{dom}"));
    let found = found.split("</pre>").next().unwrap();
    let found = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    Some(serde_json::from_str(&found).unwrap())
}

const NARROW: &str = "(document.querySelectorAll('details').forEach(part => part.open = true),
    [document.documentElement.scrollWidth - document.documentElement.clientWidth,
     [...document.querySelectorAll('body *')].filter(part =>
         part.getBoundingClientRect().right > innerWidth + 1 && !part.closest('.scroll, nav, svg'))
         .map(part => part.outerHTML.slice(0, 80))])";

#[test]
#[ignore = "takes long: drives a browser"]
fn narrow_pages_scroll_vertically_only() {
    for (name, page) in &*PAGES {
        let Some(found) = shown(page, (360, 740), NARROW) else { return };
        assert_eq!(found, json!([0, []]), "{name}");
    }
}

/// A reader must find the answers without scrolling far: four screens of 1280 × 800.
#[test]
#[ignore = "takes long: drives a browser"]
fn overview_fits_on_four_screens_and_parts_are_visible() {
    let height = "document.documentElement.scrollHeight";
    let Some(height) = shown(&PAGES[OVERVIEW], (1280, 800), height) else { return };
    assert!(height.as_f64() <= Some(3200.0), "{height}");
    for (name, parts) in [
        (
            OVERVIEW.to_owned(),
            &[
                (".rung:not(.head) .track", 8),
                (".headlines li", 4),
                (".answers > li", 4),
                (".pages a", 8),
            ][..],
        ),
        (file("death"), &[("table.survivors tbody tr", 5), (".chart .track", 8)]),
        (file("signals"), &[("figure.curve .plot", 2)]),
    ] {
        for (selector, fewest) in parts {
            let visible = format!(
                "[...document.querySelectorAll('{selector}')].filter(part =>
                     part.checkVisibility() && part.getBoundingClientRect().height > 10).length"
            );
            let visible = shown(&PAGES[&name], (1280, 800), &visible).unwrap();
            assert!(visible.as_u64() >= Some(*fewest), "{selector}: {visible}");
        }
    }
}
