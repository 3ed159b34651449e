//! The node before and after a pass.

use maud::{Markup, html};

use super::words::{columns, count};
use crate::model::{NodeFigures, Pass, short_size};

/// What a figure was and is.
struct FigureChange {
    name: &'static str,
    before: Option<u64>,
    after: Option<u64>,
    is_size: bool,
}

fn changes(before: &NodeFigures, after: &NodeFigures) -> Vec<FigureChange> {
    let change = |name, figure: fn(&NodeFigures) -> Option<u64>, is_size| FigureChange {
        name,
        before: figure(before),
        after: figure(after),
        is_size,
    };
    let mut changes = vec![
        change("exited containers", |it| it.exited_containers, false),
        change("sandboxes not ready", |it| it.not_ready_sandboxes, false),
        change("list of containers", |it| it.containers_list_bytes, true),
        change("list of sandboxes", |it| it.sandboxes_list_bytes, true),
        change("image file system", |it| it.image_fs_used_bytes, true),
        change("its inodes", |it| it.image_fs_inodes_used, false),
    ];
    changes.retain(|it| it.before.is_some() || it.after.is_some());
    changes
}

pub(super) fn figure(figure: Option<u64>, is_size: bool) -> String {
    match figure {
        None => "not known".to_owned(),
        Some(bytes) if is_size => short_size(bytes),
        Some(number) => count(number),
    }
}

fn difference(change: &FigureChange) -> String {
    let (Some(before), Some(after)) = (change.before, change.after) else {
        return String::new();
    };
    let size = |n: u64| figure(Some(n), change.is_size);
    match before.cmp(&after) {
        std::cmp::Ordering::Equal => "same".to_owned(),
        std::cmp::Ordering::Greater => format!("−{}", size(before - after)),
        std::cmp::Ordering::Less => format!("+{}", size(after - before)),
    }
}

pub(super) fn before_after(pass: &Pass) -> Markup {
    let (Some(before), Some(after)) = (&pass.before, &pass.after) else {
        return html! {};
    };
    if pass.dry_run {
        return html! {};
    }
    html! {
        table.change {
            (columns(&["Node", "before", "after", "change"]))
            tbody {
                @for change in changes(before, after) {
                    tr {
                        th scope="row" { (change.name) }
                        td.number { (figure(change.before, change.is_size)) }
                        td.number { (figure(change.after, change.is_size)) }
                        td.number { (difference(&change)) }
                    }
                }
            }
        }
        @if !(before.complete && after.complete) {
            p.muted { "The lists were not read whole: the counts are lower bounds." }
        }
    }
}
