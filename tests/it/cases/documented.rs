//! The examples of `docs/policy.md` are cases: each block that begins with `case` is run, with the target that the
//! heading above it names, and its picture shows the same case.

use std::path::Path;

use super::{parse, verify};

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/policy.md");
    std::fs::read_to_string(path).unwrap()
}

/// An example: the label of its heading, as the path of a case file, and its text.
fn examples() -> Vec<(String, String)> {
    let (mut file, mut block, mut examples) = (String::new(), None, Vec::new());
    for line in page().lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            file = format!("docs/policy.md/{}/", heading.to_lowercase());
        }
        match &mut block {
            None if line == "```text" => block = Some(String::new()),
            Some(text) if line == "```" => {
                if text.starts_with("case ") {
                    examples.push((file.clone(), std::mem::take(text)));
                }
                block = None;
            }
            Some(text) => *text += &format!("{line}\n"),
            None => {}
        }
    }
    examples
}

#[test]
fn examples_of_the_policy_text_hold() {
    let examples = examples();
    assert!(examples.len() >= 15, "{examples:?}");
    let mut errors = Vec::new();
    for (file, text) in examples {
        match parse::cases(&file, &text) {
            Ok(cases) => {
                let wrong = cases.iter().flat_map(verify);
                errors.extend(wrong.map(|error| format!("{text}{error}")));
            }
            Err(error) => errors.push(format!("{text}{error}")),
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n\n"));
}

/// `docs/images/policy.py` draws them; each picture holds the text that it was drawn from.
#[test]
fn pictures_of_the_policy_text_are_of_its_examples() {
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let page = page();
    let links = page.split("](images/policy-").skip(1);
    let links = links.map(|it| it.split_once(')').unwrap().0);
    let mut pictures = 0;
    for link in links {
        let picture = std::fs::read_to_string(images.join(format!("images/policy-{link}")));
        let picture = picture.unwrap();
        let drawn = picture.split_once("<desc>").unwrap().1;
        let drawn = drawn.split_once("</desc>").unwrap().0;
        let drawn = drawn.replace("&gt;", ">").replace("&amp;", "&");
        let is_there = examples().iter().any(|(_, text)| *text == drawn);
        assert!(is_there, "make pictures: {link} shows\n{drawn}");
        pictures += 1;
    }
    assert!(pictures >= 5);
}
