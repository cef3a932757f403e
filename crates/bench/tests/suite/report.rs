//! The page of `report`, as a browser shows it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::browser::Browser;

/// The results that the documentation shows.
const RESULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/figures.json");

/// A file of this test run's own.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Makes a page, and returns the counts.
fn report(arguments: &[&str], page: &Path) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_drtm-bench"))
        .args(["report", "--json", "--out"])
        .arg(page)
        .args(arguments)
        .output()
        .expect("the binary starts");
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("counts")
}

/// What is wrong with the pictures: figures without one, pictures without a size or a value, texts
/// that are cut off. And how wide the page is beyond its window.
const INSPECT: &str = r#"(() => {
    const wrong = [];
    const articles = [...document.querySelectorAll("article")];
    for (const article of articles) {
        const charts = [...article.querySelectorAll("svg.chart")];
        if (charts.length == 0) wrong.push(article.id + ": no picture");
        for (const chart of charts) {
            const frame = chart.getBoundingClientRect();
            if (frame.width < 200 || frame.height < 40) wrong.push(article.id + ": a picture of no size");
            const drawn = [...chart.querySelectorAll(".mark, .bar, .published, .right, .wrong")];
            const seen = drawn.map(mark => mark.getBoundingClientRect()).filter(box =>
                box.width + box.height > 0 && box.left >= frame.left - 1 && box.right <= frame.right + 1
                && box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1);
            if (seen.length == 0) wrong.push(article.id + ": an empty picture");
            if (seen.length < drawn.length) wrong.push(article.id + ": a value is outside");
            for (const text of chart.querySelectorAll("text")) {
                const box = text.getBoundingClientRect();
                if (box.left < frame.left - 2 || box.right > frame.right + 2 || box.bottom > frame.bottom + 2)
                    wrong.push(article.id + ": cut off: " + text.textContent);
            }
        }
    }
    for (const link of document.querySelectorAll("a"))
        if (!document.getElementById(decodeURIComponent(link.hash.slice(1)))) wrong.push("no place " + link.href);
    return {
        wrong,
        figures: articles.length,
        links: document.querySelectorAll("tbody a").length,
        beyond: document.documentElement.scrollWidth - document.documentElement.clientWidth,
        width: innerWidth,
        paper: getComputedStyle(document.documentElement).backgroundColor,
        strange: document.querySelectorAll("script, img, iframe, object, embed, link, [onload], [onerror]").length,
        smallest: Math.min(...[...document.querySelectorAll("svg.chart")].map(chart =>
            12 * chart.getBoundingClientRect().width / chart.viewBox.baseVal.width)),
        text: document.body.textContent,
    };
})()"#;

#[test]
fn every_figure_is_drawn_on_screens_phones_and_paper_and_nothing_is_fetched() {
    let page = file("report.html");
    let counts = report(&["--from", RESULTS], &page);
    let Some(mut browser) = Browser::start("report") else { return };
    let mut papers = Vec::new();
    for (width, scheme) in [(1280, "light"), (1280, "dark"), (360, "light"), (360, "dark")] {
        browser.look(width, scheme);
        let seen = browser.open(&page);
        assert_eq!((seen.requests.len(), seen.complaints.len()), (1, 0), "only the page itself: {seen:?}");
        let found = browser.evaluate(INSPECT);
        assert_eq!(found["wrong"], json!([]), "{width} pixels, {scheme}");
        assert_eq!((&found["figures"], &found["links"]), (&counts["figures"], &counts["figures"]));
        assert_eq!((&found["beyond"], &found["width"]), (&json!(0), &json!(width)), "the page scrolls sideways");
        assert!(found["smallest"].as_f64() >= Some(9.0), "letters of {} pixels", found["smallest"]);
        let text = found["text"].as_str().expect("text");
        assert!(text.contains("SIMULATED") && text.contains("missing") && !text.contains("quick run"), "{text}");
        papers.push(found["paper"].clone());
    }
    assert_eq!((&papers[0], &papers[1]), (&papers[2], &papers[3]));
    assert_ne!(papers[0], papers[1], "dark is dark");
    // A sheet of A4, also for a reader in the dark.
    browser.look(794, "dark");
    let features = json!([{"name": "prefers-color-scheme", "value": "dark"}]);
    browser.call("Emulation.setEmulatedMedia", &json!({"media": "print", "features": features}));
    let printed = browser.evaluate(INSPECT);
    assert_eq!((&printed["wrong"], &printed["paper"]), (&json!([]), &papers[0]), "on paper");
    let printed = browser.call("Page.printToPDF", &json!({}));
    assert!(printed["data"].as_str().is_some_and(|pdf| pdf.len() > 10_000));
}

/// Without its policy, a page that fetches is noticed; with it, it does not.
#[test]
fn what_is_fetched_would_be_noticed() {
    let page = file("fetching.html");
    report(&["--from", RESULTS], &page);
    let Some(mut browser) = Browser::start("fetching") else { return };
    let text = fs::read_to_string(&page).expect("the page");
    let policy = "<meta http-equiv=\"Content-Security-Policy\"";
    assert_eq!(text.matches(policy).count(), 1);
    let fetching = text.replace("</body>", "<img src=\"other.svg\"><script>document.title = 'run'</script></body>");
    fs::write(&page, &fetching).expect("written");
    let seen = browser.open(&page);
    assert!(!seen.complaints.is_empty(), "the policy speaks: {seen:?}");
    assert_ne!(browser.evaluate("document.title"), "run");
    fs::write(&page, fetching.replace(policy, "<meta name=\"nothing\"")).expect("written");
    let seen = browser.open(&page);
    assert!(seen.requests.len() > 1, "{seen:?}");
    assert_eq!(browser.evaluate("document.title"), "run");
}

#[test]
fn texts_of_results_are_shown_and_not_interpreted() {
    const HOSTILE: &str =
        "</title></svg></table><script>document.title='run'</script><img src=x onerror=alert(1)>\"'&amp;";
    let mut results: Value = serde_json::from_slice(&fs::read(RESULTS).expect("results")).expect("JSON");
    for figure in results["figures"].as_array_mut().expect("figures") {
        for field in ["source", "failure"] {
            figure[field] = HOSTILE.into();
        }
        for field in ["command", "commit", "machine", "day"] {
            figure["origin"][field] = HOSTILE.into();
        }
        for row in figure["rows"].as_array_mut().expect("rows") {
            row["series"] = format!("{}{HOSTILE}", row["series"]).into();
            if row["y"].is_null() {
                row["why"] = HOSTILE.into();
            }
        }
    }
    let (saved, page) = (file("hostile.json"), file("hostile.html"));
    fs::write(&saved, results.to_string()).expect("written");
    let counts = report(&["--from", saved.to_str().expect("utf-8")], &page);
    let text = fs::read_to_string(&page).expect("the page");
    assert!(!text.contains("<script") && !text.contains("<img"));
    let Some(mut browser) = Browser::start("hostile") else { return };
    let seen = browser.open(&page);
    assert_eq!((seen.requests.len(), seen.complaints.len()), (1, 0), "{seen:?}");
    let found = browser.evaluate(INSPECT);
    assert_eq!((&found["strange"], &found["figures"]), (&json!(0), &counts["figures"]));
    assert!(found["text"].as_str().is_some_and(|text| text.contains("<script>") && text.contains("&amp;")));
}

#[test]
fn a_quick_run_says_so_and_its_results_are_kept() {
    let (page, saved, again) = (file("quick.html"), file("quick.json"), file("again.html"));
    let saved_name = saved.to_str().expect("utf-8");
    let figures = "drtm-fig7,hades-storage,drtmh-fig10b";
    let counts = report(&["--quick", "--only", figures, "--save", saved_name], &page);
    assert_eq!((&counts["figures"], &counts["exact"]), (&json!(5), &json!(2)), "{counts}");
    let text = fs::read_to_string(&page).expect("the page");
    for part in ["A quick run", "quick: tiny", "drtm-bench paper drtmh-fig10b --quick", "SIMULATED", "processor"] {
        assert!(text.contains(part), "{part}");
    }
    assert_eq!(report(&["--from", saved_name], &again), counts);
    assert_eq!(fs::read_to_string(&again).expect("the page"), text);
}

#[test]
fn rows_of_a_figure_are_results_too() {
    let (rows, page) = (file("rows.json"), file("rows.html"));
    let output = Command::new(env!("CARGO_BIN_EXE_drtm-bench"))
        .args(["paper", "hades-storage", "--json"])
        .output()
        .expect("the binary starts");
    fs::write(&rows, output.stdout).expect("written");
    let counts = report(&["--from", rows.to_str().expect("utf-8")], &page);
    assert_eq!((&counts["figures"], &counts["exact"]), (&json!(1), &json!(1)));
    assert!(fs::read_to_string(&page).expect("the page").contains("not recorded"));
}

#[test]
fn wrong_results_and_wrong_usage_are_refused() {
    let wrong = file("wrong.json");
    fs::write(&wrong, "{}").expect("written");
    let wrong = wrong.to_str().expect("utf-8");
    for arguments in [
        &["report"][..],
        &["report", "--from", RESULTS],
        &["report", "--from", RESULTS, "--quick", "--out", "x.html"],
        &["report", "--from", wrong, "--out", "x.html"],
        &["report", "--from", "/no/such/file", "--out", "x.html"],
        &["report", "--from", RESULTS, "--out", "/no/such/directory/x.html"],
        &["report", "--from", RESULTS, "--markdown", wrong],
        &["report", "--only", "dbx-fig99", "--out", "x.html"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_drtm-bench")).args(arguments).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}
