//! The node before and after a pass.

use std::cmp::Ordering;

use maud::{Markup, html};

use super::words::{columns, count};
use crate::model::{NodeFigures, Pass, short_size};

pub(super) fn before_after(pass: &Pass) -> Markup {
    let (Some(before), Some(after), false) = (&pass.before, &pass.after, pass.dry_run) else {
        return html! {};
    };
    let row = |name, of: fn(&NodeFigures) -> Option<u64>, is_size| {
        row(name, of(before), of(after), is_size)
    };
    html! {
        table.change {
            (columns(&["Node", "before", "after", "change"]))
            tbody {
                (row("exited containers", |it| it.exited_containers, false))
                (row("sandboxes not ready", |it| it.not_ready_sandboxes, false))
                (row("list of containers", |it| it.containers_list_bytes, true))
                (row("list of sandboxes", |it| it.sandboxes_list_bytes, true))
                (row("image file system", |it| it.image_fs_used_bytes, true))
                (row("its inodes", |it| it.image_fs_inodes_used, false))
            }
        }
        @if !(before.complete && after.complete) {
            p.muted { "The lists were not read whole: the counts are lower bounds." }
        }
    }
}

fn row(name: &str, before: Option<u64>, after: Option<u64>, is_size: bool) -> Markup {
    html! {
        @if before.is_some() || after.is_some() {
            tr {
                th scope="row" { (name) }
                td.number { (figure(before, is_size)) }
                td.number { (figure(after, is_size)) }
                td.number { (difference(before, after, is_size)) }
            }
        }
    }
}

pub(super) fn figure(figure: Option<u64>, is_size: bool) -> String {
    match figure {
        None => "not known".to_owned(),
        Some(bytes) if is_size => short_size(bytes),
        Some(number) => count(number),
    }
}

fn difference(before: Option<u64>, after: Option<u64>, is_size: bool) -> String {
    let Some((before, after)) = before.zip(after) else {
        return String::new();
    };
    let size = figure(Some(before.abs_diff(after)), is_size);
    match before.cmp(&after) {
        Ordering::Equal => "same".to_owned(),
        Ordering::Greater => format!("−{size}"),
        Ordering::Less => format!("+{size}"),
    }
}
