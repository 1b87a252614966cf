//! The dashboard as people have it: in a browser, by keyboard, on a phone, in the dark.

mod browser;

use super::*;
use browser::{Browser, ENTER, TAB};

/// The least contrast of text, by the Web Content Accessibility Guidelines (AA).
const CONTRAST: f64 = 4.5;

/// The contrast of each text with what is behind it, the least of all.
const LEAST_CONTRAST: &str = r"
    const channel = (c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
    const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
    const read = (text) => text.match(/[\d.]+/g).map(Number);
    const behind = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const colour = read(getComputedStyle(at).backgroundColor);
            if (colour.length < 4 || colour[3] > 0) return colour;
        }
        return [255, 255, 255];
    };
    let least = [21, ''];
    for (const element of document.querySelectorAll('body *')) {
        const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
        if (!own || !element.checkVisibility()) continue;
        const [one, other] = [light(read(getComputedStyle(element).color)), light(behind(element))];
        const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        if (contrast < least[0]) least = [contrast, element.outerHTML.slice(0, 120)];
    }
    return least;
";

fn shown() -> (Node, String) {
    let node = gateway(home("cloud"), &["infer:*"]);
    for _ in 0..3 {
        assert_eq!(infer(&node.server, MODEL, &[]).status, 200);
    }
    let bearer = token(&node, &["--right", "admin"]);
    let bearer = bearer["Bearer ".len()..].to_owned();
    (node, bearer)
}

/// Opens it, and enters the token without a mouse.
fn enter(browser: &Browser, node: &Node, bearer: &str) {
    browser.open(&format!("http://{}/", node.server.address));
    browser.until("return document.activeElement.id === 'token'");
    browser.press(bearer);
    browser.press(ENTER);
    browser.until("return !document.getElementById('contents').hidden");
}

#[track_caller]
fn is_readable(browser: &Browser) {
    let least = browser.run(LEAST_CONTRAST);
    assert!(least[0].as_f64().unwrap() >= CONTRAST, "{least}");
}

#[test]
fn it_is_used_by_keyboard_and_fetches_nothing_from_elsewhere() {
    let (node, bearer) = shown();
    let browser = Browser::start(1280, 900);
    browser.open(&format!("http://{}/", node.server.address));
    browser.until("return document.activeElement.id === 'token'");
    // A wrong token is told, and asked for again.
    browser.press("nonsense");
    browser.press(ENTER);
    browser.until("return document.getElementById('refused').textContent !== ''");
    enter(&browser, &node, &bearer);

    browser.until("return document.querySelectorAll('#decisions tbody tr').length === 3");
    let text = browser.run("return document.getElementById('contents').innerText");
    let text = text.as_str().unwrap();
    for said in [MODEL, "tiny", "this node has the model", "cloud", &node.id()[..8]] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert_eq!(browser.run("return document.title"), "Karman");
    is_readable(&browser);

    // Whoever has entered goes on at the contents.
    assert_eq!(browser.run("return document.activeElement.id"), "main");

    // Who holds it still reads in peace: nothing is asked for until that is over.
    let peace = browser.run(
        "const ask = window.fetch; let asked = 0;
            window.fetch = (...all) => { asked += 1; return ask(...all); };
            const hold = document.getElementById('hold');
            const pressed = () => hold.getAttribute('aria-pressed');
            hold.click();
            document.dispatchEvent(new Event('visibilitychange'));
            const held = [asked, pressed(), document.getElementById('state').textContent];
            hold.click();
            return [...held, asked > 0, pressed()]",
    );
    assert_eq!(peace, json!([0, "true", "held still", true, "false"]));
    // What is wider than its place is reached by Tab, too, and only as long as it is.
    let reached = browser.run(
        "const section = document.getElementById('plugins').parentElement;
            const resized = () => { window.dispatchEvent(new Event('resize')); return section.tabIndex; };
            const wide = section.appendChild(document.createElement('div'));
            wide.style.cssText = 'width: 3000px; height: 1px';
            const reached = resized();
            wide.remove();
            return [reached, resized()]",
    );
    assert_eq!(reached, json!([0, -1]));

    // Everything that can be done is reached by Tab, in order, and shows that it is.
    browser.open(&format!("http://{}/", node.server.address));
    browser.until("return !document.getElementById('contents').hidden");
    let mut reached = Vec::new();
    for _ in 0..8 {
        browser.press(TAB);
        let focus = "const at = document.activeElement; return [at.className || at.id, getComputedStyle(at).outlineStyle]";
        let focus = browser.run(focus);
        if focus[0] != "" {
            assert_ne!(focus[1], "none", "{focus}");
            reached.push(focus[0].as_str().unwrap().to_owned());
        }
        if focus[0] == "leave" {
            break;
        }
    }
    assert!(
        reached.first().is_some_and(|first| first == "skip"),
        "{reached:?}"
    );
    assert!(reached.last().is_some_and(|last| last == "leave"), "{reached:?}");
    browser.press(ENTER);
    browser.until("return document.getElementById('contents').hidden");
    browser.until("return document.activeElement.id === 'token'");
    assert_eq!(browser.run("return sessionStorage.length"), 0);

    let asked: Vec<String> = browser
        .log("performance")
        .iter()
        .filter_map(|line| {
            let event: Value = serde_json::from_str(line["message"].as_str()?).ok()?;
            let event = &event["message"];
            (event["method"] == "Network.requestWillBeSent")
                .then(|| event["params"]["request"]["url"].as_str().map(str::to_owned))?
        })
        .collect();
    let ours = format!("http://{}/", node.server.address);
    assert!(asked.iter().any(|url| url.ends_with("/admin/nodes")), "{asked:?}");
    for url in asked {
        assert!(url.starts_with(&ours) || url.starts_with("data:"), "{url}");
    }
    // 401 for the wrong token is all that it complains about.
    let complaints: Vec<Value> = browser
        .log("browser")
        .into_iter()
        .filter(|line| line["level"] == "SEVERE" && !line["message"].as_str().unwrap().contains("401"))
        .collect();
    assert!(complaints.is_empty(), "{complaints:?}");
}

#[test]
fn it_fits_a_phone_and_the_dark() {
    let (node, bearer) = shown();
    let browser = Browser::start(1280, 900);
    let scheme = |name: &str| {
        let features = json!([{ "name": "prefers-color-scheme", "value": name }]);
        browser.order("Emulation.setEmulatedMedia", &json!({ "features": features }));
    };
    let ground = || browser.run("return getComputedStyle(document.body).backgroundColor");
    enter(&browser, &node, &bearer);
    browser.until("return document.querySelectorAll('#decisions tbody tr').length === 3");
    scheme("light");
    let light = ground();
    is_readable(&browser);
    scheme("dark");
    assert_ne!(ground(), light);
    is_readable(&browser);

    fits_a_phone(&browser);
}

#[track_caller]
fn fits_a_phone(browser: &Browser) {
    let phone = json!({ "width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": true });
    browser.order("Emulation.setDeviceMetricsOverride", &phone);
    browser.until("return innerWidth === 360");
    let wide = browser.run("return document.documentElement.scrollWidth");
    assert!(wide.as_u64() <= Some(360), "it is {wide} wide");
    // No line is cut off: what does not fit is broken, and a cell says which column it is of.
    let hidden = browser.run(
        "return [...document.querySelectorAll('section, td, .node, dd')]
            .filter((element) => element.scrollWidth > element.clientWidth + 1)
            .map((element) => element.outerHTML.slice(0, 80))",
    );
    assert_eq!(hidden, json!([]));
    let named = browser.run("return getComputedStyle(document.querySelector('td'), '::before').content");
    assert!(
        named.as_str().is_some_and(|content| content.starts_with('"')),
        "{named}"
    );
    // Those who are read the page to are still told that it is a table.
    let roles = browser.run(
        "return [...document.querySelectorAll('table, thead, tbody, tr, th, td')]
            .filter((element) => !element.role)
            .map((element) => element.outerHTML.slice(0, 80))",
    );
    assert_eq!(roles, json!([]));
    // Fingers need room.
    let small = browser.run(
        "return [...document.querySelectorAll('button, input')]
            .filter((element) => element.checkVisibility() && element.getBoundingClientRect().height < 36)
            .map((element) => element.id)",
    );
    assert_eq!(small, json!([]));
    is_readable(browser);
}

#[test]
fn it_shows_workflows_rounds_and_contacts() {
    let (node, bearer) = super::admin::busy();
    let browser = Browser::start(1280, 900);
    enter(&browser, &node, &bearer["Bearer ".len()..]);
    let shows = |place: &str, says: &str| {
        browser.until(&format!(
            "return document.getElementById('{place}').innerText.includes('{says}')"
        ));
    };
    shows("flows", "length done");
    shows("flows", "count");
    shows("slos", "No workflow with objectives");
    shows("gpu", "Nobody has asked for a GPU");
    shows("rounds", "version 12 of 12");
    shows("contacts", "in reach until");
    // Each station has a line of its own: one contact is open, one is to come, and each says so in words.
    let drawn = "return [...document.querySelectorAll('#contacts svg')].map((line) => [line.querySelectorAll('.open').length,
        line.querySelectorAll('.later').length, line.getAttribute('aria-label').startsWith('In reach ')])";
    assert_eq!(browser.run(drawn), json!([[1, 0, true], [0, 1, true]]));
    let place = "const [line, open] = ['#contacts svg', '#contacts svg .open'].map((name) =>
        document.querySelector(name).getBoundingClientRect());
        return line.width > 50 && open.width > 5 && open.left >= line.left - 1 && open.right <= line.right + 1";
    assert_eq!(browser.run(place), true);
    let curve = browser.run("return document.querySelector('#rounds svg').getAttribute('aria-label')");
    assert!(
        curve
            .as_str()
            .is_some_and(|says| says.contains("after version 12")),
        "{curve}"
    );
    is_readable(&browser);
    fits_a_phone(&browser);
    // Who forgets the token forgets what it showed.
    browser.run("document.getElementById('leave').click()");
    browser.until("return document.activeElement.id === 'token'");
    assert_eq!(
        browser.run("return document.getElementById('flows').innerHTML"),
        ""
    );
}

#[test]
fn it_shows_how_far_workflows_keep_their_objectives() {
    let node = super::objectives::measured();
    let bearer = super::objectives::ran_with_objectives(&node);
    let browser = Browser::start(1280, 900);
    enter(&browser, &node, &bearer["Bearer ".len()..]);
    browser.until(
        "return document.getElementById('slos').innerText.includes('missed: of 3 runs 3 late, 0 failed')",
    );
    let text = browser.run("return document.getElementById('slos').innerText");
    let text = text.as_str().unwrap();
    for says in [
        "kept-easily",
        "kept: of 2 runs 0 late, 0 failed",
        "95 of 100 within",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    let bars = "return [...document.querySelectorAll('#slos svg')].map((line) =>
        [line.querySelectorAll('rect').length > 0, line.getAttribute('aria-label').endsWith('as wanted')])";
    assert_eq!(browser.run(bars), json!([[true, true], [true, true]]));
    is_readable(&browser);
    fits_a_phone(&browser);
}
