//! The node before and after a pass, as a small table.

use crate::model::{NodeFigures, short_size};

/// Formats the figures before and after a pass side by side; leaves out what neither look could read.
pub(super) fn figures_text(before: &NodeFigures, after: &NodeFigures) -> String {
    type Cell<'a> = &'a dyn Fn(&NodeFigures) -> Option<String>;
    let count = |figure: Option<u64>| figure.map(|figure| figure.to_string());
    let size = |figure: Option<u64>| figure.map(short_size);
    let filesystem = |figures: &NodeFigures| {
        let (bytes, ratio) = (figures.image_fs_used_bytes?, figures.image_fs_used_ratio?);
        Some(format!("{} ({:.1} %)", short_size(bytes), 100.0 * ratio))
    };
    let rows: [(&str, Cell<'_>); 6] = [
        ("exited containers", &|it| count(it.exited_containers)),
        ("dead sandboxes", &|it| count(it.not_ready_sandboxes)),
        ("list of containers", &|it| size(it.containers_list_bytes)),
        ("list of sandboxes", &|it| size(it.sandboxes_list_bytes)),
        ("image file system", &filesystem),
        ("its inodes in use", &|it| count(it.image_fs_inodes_used)),
    ];
    let mut text = String::new();
    for (name, cell) in rows {
        let (before, after) = (cell(before), cell(after));
        if before.is_some() || after.is_some() {
            let [before, after] = [before, after].map(|it| it.unwrap_or_else(|| "-".to_owned()));
            text.push_str(&format!(" {name:<20}{before:<19}{after}\n"));
        }
    }
    if text.is_empty() {
        return text;
    }
    if !(before.complete && after.complete) {
        text.push_str("the lists were not read completely: the counts are lower bounds\n");
    }
    format!("\n {:<20}{:<19}AFTER\n{text}", "NODE", "BEFORE")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_shows_the_node_before_and_after_it() {
        let before = NodeFigures {
            exited_containers: Some(1200),
            not_ready_sandboxes: Some(400),
            containers_list_bytes: Some(3 << 20),
            sandboxes_list_bytes: Some(1 << 20),
            image_fs_used_ratio: Some(0.913),
            image_fs_used_bytes: Some(50 << 30),
            image_fs_inodes_used: Some(120_000),
            ..NodeFigures::default()
        };
        let after = NodeFigures {
            exited_containers: Some(3),
            not_ready_sandboxes: None,
            containers_list_bytes: Some(9 << 10),
            image_fs_inodes_used: Some(90_000),
            complete: false,
            ..before.clone()
        };
        let text = figures_text(&before, &after);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let expected = [
            "",
            "NODE                BEFORE             AFTER",
            "exited containers   1200               3",
            "dead sandboxes      400                -",
            "list of containers  3.0 MiB            9.0 KiB",
            "list of sandboxes   1.0 MiB            1.0 MiB",
            "image file system   50.0 GiB (91.3 %)  50.0 GiB (91.3 %)",
            "its inodes in use   120000             90000",
            "the lists were not read completely: the counts are lower bounds",
        ];
        assert_eq!(lines, expected);
        let unknown = NodeFigures::default();
        assert_eq!(figures_text(&unknown, &unknown), "");
    }
}
