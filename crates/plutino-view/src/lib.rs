//! One page that shows a model: everything inside, nothing fetched, nothing of the model executed.
//!
//! The page is a template with four holes. Names of a model reach it in two ways only: as the
//! title, escaped for HTML, and inside of a block of JSON in which no character can end the block.
//! The script puts text into the page as text. A content security policy names the one script and
//! the one style by their digests, so that not even a mistake here lets a model run anything.

#![forbid(unsafe_code)]

mod data;
mod markup;
mod scopes;
mod sha256;
mod stats;

pub use data::{Data, Marks, Times};
pub use markup::escape;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");

/// The script, in pieces that share one scope.
const SCRIPT: &[&str] = &[
    include_str!("js/model.js"),
    include_str!("js/layout.js"),
    include_str!("js/graph.js"),
    include_str!("js/arena.js"),
    include_str!("js/details.js"),
    include_str!("js/main.js"),
];

/// The page of a model.
///
/// # Errors
/// Where there is no JSON for it.
pub fn page(data: &Data) -> Result<String, serde_json::Error> {
    let script = format!("\"use strict\";\n(() => {{\n{}}})();\n", SCRIPT.concat());
    let digest = |text: &str| sha256::base64(&sha256::digest(text.as_bytes()));
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; \
         form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        digest(&script),
        digest(STYLE)
    );
    let json = json_in_html(&serde_json::to_string(data)?);
    let fill = |hole: &str| match hole {
        "title" => escape(&data.model),
        "policy" => policy.clone(),
        "style" => STYLE.to_owned(),
        "data" => json.clone(),
        "script" => script.clone(),
        _ => String::new(),
    };
    // What is filled in is not searched for holes.
    let mut page = String::with_capacity(json.len() + script.len() + PAGE.len() + STYLE.len());
    for (i, part) in PAGE.split("{{").enumerate() {
        match part.split_once("}}").filter(|_| i > 0) {
            Some((hole, rest)) => page.extend([fill(hole), rest.to_owned()]),
            None => page.push_str(part),
        }
    }
    Ok(page)
}

/// The same JSON without characters that mean something to HTML: they only stand in strings, where
/// an escape says the same.
fn json_in_html(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{7f}' | '\u{2028}' | '\u{2029}' => {
                escaped.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_name_is_markup() {
        let name = "</script><img onerror=alert(1)>&amp;\u{2028}";
        let json = json_in_html(&serde_json::to_string(name).unwrap());
        assert!(!json.contains(['<', '>', '&', '\u{2028}']), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), name);
    }

    #[test]
    fn the_page_has_no_other_holes_and_loads_nothing() {
        let holes: Vec<&str> =
            PAGE.split("{{").skip(1).filter_map(|p| Some(p.split_once("}}")?.0)).collect();
        assert_eq!(holes, ["policy", "title", "style", "data", "script"]);
        let all = [&[PAGE, STYLE], SCRIPT].concat().concat();
        for word in ["http:", "https:", "//cdn", "@import", "url(", "innerHTML", "eval("] {
            assert!(!all.contains(word), "{word}");
        }
        for word in ["fetch(", "XMLHttpRequest", "WebSocket", "document.write", "insertAdjacent"] {
            assert!(!all.contains(word), "{word}");
        }
    }

    #[test]
    fn a_script_ends_where_it_ends() {
        assert!(SCRIPT.iter().all(|piece| !piece.contains("</script") && piece.is_ascii()));
        assert!(!STYLE.contains("</style"));
    }
}
