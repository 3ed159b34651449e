//! Judges the rows of a list one by one: a defective row keeps only the objects that it may concern.

use std::collections::BTreeMap;

use super::ListResult;
use crate::model::{
    Container, ContainerState, Coverage, HasId, PodList, PodSandbox, PodSandboxState,
};
use crate::system::maps::IdSet;

/// A row of a list.
pub(super) trait LookRow: Clone + PartialEq + HasId {
    /// How alive the object is; the higher, the more there is to lose.
    fn liveliness(&self) -> u8;
    /// The runtime left out some of its ids.
    fn is_odd(&self) -> bool;
}

impl LookRow for Container {
    fn liveliness(&self) -> u8 {
        match self.state {
            ContainerState::Running => 3,
            ContainerState::Unknown => 2,
            ContainerState::Created => 1,
            ContainerState::Exited => 0,
        }
    }

    fn is_odd(&self) -> bool {
        self.id.is_stand_in() || self.sandbox_id.is_stand_in()
    }
}

impl LookRow for PodSandbox {
    fn liveliness(&self) -> u8 {
        match self.state {
            PodSandboxState::Ready => 1,
            PodSandboxState::NotReady => 0,
        }
    }

    fn is_odd(&self) -> bool {
        false
    }
}

/// Does not believe an empty list beside a pod that runs, as the pod source says: the runtime has lost its records, or
/// not loaded them, and another empty list is no witness.
pub(super) fn doubt_empty<T>(list: &mut ListResult<T>, pods: Option<&PodList>) {
    if let Ok(listed) = list
        && listed.rows.is_empty()
        && pods.is_some_and(|pods| pods.any_runs)
    {
        listed.coverage = Coverage::Partial;
    }
}

/// Keeps one row for each id. If rows contradict each other, the liveliest stays and the list is incomplete;
/// the same holds for a row that cannot be identified.
pub(super) fn judge<T: LookRow>(list: &mut ListResult<T>) {
    let Ok(listed) = list else { return };
    let ids: IdSet<&str> = listed.rows.iter().map(HasId::id).collect();
    if ids.len() < listed.rows.len() {
        let (rows, repeated, contradictions) = one_for_each_id(&listed.rows);
        listed.rows = rows.into();
        listed.odd += repeated;
        listed.malformed += contradictions;
    }
    listed.odd += listed.rows.iter().filter(|row| row.is_odd()).count();
    if listed.malformed > 0 {
        listed.coverage = Coverage::Partial;
    }
}

/// Returns the rows, the number of duplicates, and the number of contradictions.
fn one_for_each_id<T: LookRow>(rows: &[T]) -> (Vec<T>, usize, usize) {
    let mut by_id: BTreeMap<&str, &T> = BTreeMap::new();
    let (mut repeated, mut contradictions) = (0, 0);
    for row in rows {
        let Some(known) = by_id.get_mut(row.id()) else {
            by_id.insert(row.id(), row);
            continue;
        };
        if **known == *row {
            repeated += 1;
            continue;
        }
        contradictions += 1;
        if row.liveliness() > known.liveliness() {
            *known = row;
        }
    }
    (
        by_id.into_values().cloned().collect(),
        repeated,
        contradictions,
    )
}

#[cfg(test)]
mod tests {

    use jiff::Timestamp;

    use super::*;
    use crate::model::{PodSandboxId, Rows};
    use crate::runtime;

    fn sandbox(id: &str, state: PodSandboxState) -> PodSandbox {
        PodSandbox {
            id: PodSandboxId::new(id).unwrap(),
            pod: None,
            attempt: 0,
            state,
            created_at: Timestamp::UNIX_EPOCH,
            config_source: None,
            labels: crate::model::Labels::default(),
        }
    }

    fn judged(rows: Vec<PodSandbox>) -> runtime::Listing<PodSandbox> {
        let mut list = Ok(runtime::Listing {
            rows: Rows::from(rows),
            malformed: 0,
            mounted: BTreeMap::new(),
            odd: 0,
            coverage: Coverage::Whole,
            whole_pods: std::collections::BTreeSet::new(),
            cut_short: false,
            response_bytes: 0,
            limit_bytes: None,
            mode: runtime::ListMode::Unary,
        });
        judge(&mut list);
        list.unwrap()
    }

    #[test]
    fn of_a_duplicated_row_one_is_used_and_one_counted() {
        let (a, b) = (PodSandboxState::Ready, PodSandboxState::NotReady);
        let rows = vec![
            sandbox("s1", b),
            sandbox("s0", a),
            sandbox("s1", b),
            sandbox("s1", b),
        ];
        let list = judged(rows);
        assert_eq!(list.rows[..], [sandbox("s0", a), sandbox("s1", b)]);
        assert_eq!((list.odd, list.malformed), (2, 0));
        assert_eq!(list.coverage, Coverage::Whole, "nothing may be missing");
    }

    #[test]
    fn of_contradicting_rows_the_liveliest_is_used_and_the_list_is_incomplete() {
        let (ready, dead) = (PodSandboxState::Ready, PodSandboxState::NotReady);
        let list = judged(vec![sandbox("s0", dead), sandbox("s0", ready)]);
        assert_eq!(list.rows[..], [sandbox("s0", ready)]);
        assert_eq!((list.odd, list.malformed), (0, 1));
        assert_eq!(list.coverage, Coverage::Partial);
    }
}
