//! The newer records for which superseded ones may go: a removal names them, and they are asked for once more before it.

use std::sync::Arc;

use super::Verdict;
use super::index::Newest;
use crate::model::Text;

/// The newest records that stay and supersede the removed ones of their group. If the newest is removed too, its pod
/// is finished or deleted, and the older ones need no other record.
pub(super) struct NewerIds<'a> {
    newest: &'a Newest,
    verdicts: &'a [Verdict],
    /// By group: their ids, once a removed record has asked.
    ids: Vec<Option<Arc<[Text]>>>,
}

impl<'a> NewerIds<'a> {
    pub(super) fn of(newest: &'a Newest, verdicts: &'a [Verdict]) -> Self {
        Self {
            newest,
            verdicts,
            ids: vec![None; newest.groups()],
        }
    }

    /// Returns their ids, which all removed records of the group share.
    pub(super) fn ids(
        &mut self,
        group: usize,
        id: impl Fn(usize) -> Option<&'a Text>,
    ) -> Arc<[Text]> {
        let Some(ids) = self.ids.get_mut(group) else {
            return Arc::default();
        };
        let stays = |at: &usize| {
            self.verdicts
                .get(*at)
                .is_some_and(|it| matches!(it, Verdict::Keep(_)))
        };
        let mut newest = self.newest.of_group(group).filter(stays).peekable();
        if newest.peek().is_none() {
            // The empty list is shared: one for each finished or deleted pod would take memory and time.
            return Arc::default();
        }
        Arc::clone(ids.get_or_insert_with(|| newest.filter_map(id).cloned().collect()))
    }
}
