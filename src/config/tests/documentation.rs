//! The tables of `docs/configuration.md` are what the settings' schema and defaults say. Where `CRISWEEP_GENERATE`
//! is set, the test writes them anew. A key that the page has among the advanced ones stays there; new ones come into
//! the first table.

use schemars::generate::SchemaSettings;
use serde_json::Value as Json;

use super::*;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md");

/// The rows of each table.
struct Tables<'a> {
    /// The page's part from its advanced table on.
    written_advanced: &'a str,
    settings: String,
    advanced: String,
}

impl Tables<'_> {
    fn section(&mut self, section: &Json, above: &str) {
        for (name, field) in section["properties"].as_object().unwrap() {
            let key = format!("{above}{name}");
            if field["properties"].is_object() {
                self.section(field, &format!("{key}."));
                continue;
            }
            let row_begin = format!("\n| `{key}` |");
            let table = if self.written_advanced.contains(&row_begin) {
                &mut self.advanced
            } else {
                &mut self.settings
            };
            table.push_str(&row(&key, field));
        }
    }
}

fn row(key: &str, field: &Json) -> String {
    let default = match Config::defaults().at(key).unwrap() {
        ConfigValue::Text(text) => text.clone(),
        list @ ConfigValue::List(_) => yaml_of(list),
        other @ (ConfigValue::Null
        | ConfigValue::Bool(_)
        | ConfigValue::Integer(_)
        | ConfigValue::Float(_)
        | ConfigValue::Table(_)
        | ConfigValue::Refused) => other.to_string(),
    };
    let change = FIXED.iter().find(|(fixed, _)| *fixed == key);
    let change = change.map_or("reload".to_owned(), |(_, why)| format!("restart: {why}"));
    let meaning = field["description"].as_str().unwrap().replace('\n', " ");
    let range = range(field);
    format!("| `{key}` | {range} | `{default}` | {change} | {meaning} |\n")
}

fn yaml_of(list: &ConfigValue) -> String {
    let ConfigValue::List(items) = list else {
        panic!("{list}");
    };
    let items: Vec<_> = items.iter().map(ToString::to_string).collect();
    format!("[{}]", items.join(", "))
}

fn range(field: &Json) -> String {
    if let Some(form) = field["title"].as_str() {
        let bare = form.strip_prefix("a ").or_else(|| form.strip_prefix("an "));
        return bare.unwrap_or(form).to_owned();
    }
    if let Some(words) = field["oneOf"].as_array() {
        let words = words.iter().map(|word| word["const"].as_str().unwrap());
        return words
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(", ");
    }
    let words = match field["type"].as_str().unwrap() {
        "boolean" => "`true`, `false`",
        "array" => "list",
        "string" => "text",
        other => panic!("{other}: {field}"),
    };
    words.to_owned()
}

#[test]
fn the_tables_of_the_documentation_are_the_schemas() {
    let inline = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let schema = inline.into_generator().into_root_schema_for::<Config>();
    let written = std::fs::read_to_string(PAGE).unwrap();
    let mut tables = Tables {
        written_advanced: written.split_once("<!-- advanced -->").unwrap().1,
        settings: String::new(),
        advanced: String::new(),
    };
    tables.section(schema.as_value(), "");
    let mut page = written.clone();
    for (name, rows) in [("settings", tables.settings), ("advanced", tables.advanced)] {
        let (begin, end) = (
            format!("<!-- {name} -->\n"),
            format!("<!-- end of {name} -->"),
        );
        let (before, rest) = page.split_once(&begin).unwrap();
        let (_, after) = rest.split_once(&end).unwrap();
        let head = "\n| key | value | default | change | meaning |\n|---|---|---|---|---|\n";
        page = format!("{before}{begin}{head}{rows}\n{end}{after}");
    }
    if std::env::var_os("CRISWEEP_GENERATE").is_some() {
        std::fs::write(PAGE, page).unwrap();
        return;
    }
    for (line, wanted) in written.lines().zip(page.lines()) {
        assert_eq!(line, wanted, "CRISWEEP_GENERATE=1 writes the tables anew");
    }
    assert_eq!(written.len(), page.len());
}
