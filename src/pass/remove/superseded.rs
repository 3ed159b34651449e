//! Checks that a superseded record still has newer ones: another client may have removed them since the look,
//! and the kubelet would then find only the old one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::gc::Removal;
use crate::model::{ContainerId, PodSandboxId, Target, Text};
use crate::runtime;

/// How long an answer holds: a batch of slow removals takes minutes.
const ANSWER_HOLDS: Duration = Duration::from_secs(1);

/// The runtime's answers about newer records: each is asked about once in [`ANSWER_HOLDS`], however many records
/// it supersedes.
#[derive(Debug, Default)]
pub(super) struct NewerRecords(Mutex<BTreeMap<Text, NewerRecord>>);

#[derive(Clone, Debug)]
struct NewerRecord {
    asked_at: Instant,
    is_there: Arc<OnceCell<bool>>,
}

impl NewerRecords {
    pub(super) async fn all_exist(
        &self,
        client: &runtime::Client,
        removal: &Removal,
    ) -> Result<bool, runtime::Error> {
        for id in removal.superseded_by.iter() {
            let answer = self.answer(id);
            let ask = || is_there(client, removal.subject.target, id);
            let is_there: bool = *answer.get_or_try_init(ask).await?;
            if !is_there {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn answer(&self, id: &Text) -> Arc<OnceCell<bool>> {
        let asked_at = Instant::now();
        let mut all = self.0.lock();
        all.retain(|_, asked| asked.asked_at + ANSWER_HOLDS > asked_at);
        let asked = all.entry(id.clone()).or_insert_with(|| NewerRecord {
            asked_at,
            is_there: Arc::default(),
        });
        Arc::clone(&asked.is_there)
    }
}

async fn is_there(
    client: &runtime::Client,
    target: Target,
    id: &Text,
) -> Result<bool, runtime::Error> {
    match target {
        Target::Containers => match ContainerId::new(id.clone()) {
            Some(id) => Ok(client.container_status(&id).await?.is_some()),
            None => Ok(false),
        },
        Target::Sandboxes => match PodSandboxId::new(id.clone()) {
            Some(id) => Ok(client.sandbox_status(&id).await?.is_some()),
            None => Ok(false),
        },
        // Logs and images are never superseded.
        Target::Logs | Target::Images => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_shared_until_it_is_too_old() {
        let records = NewerRecords::default();
        let newest = Text::from("newest");
        records.answer(&newest).set(true).unwrap();
        tokio::time::advance(ANSWER_HOLDS / 2).await;
        assert_eq!(records.answer(&newest).get(), Some(&true));
        assert_eq!(records.answer(&Text::from("other")).get(), None);
        tokio::time::advance(ANSWER_HOLDS / 2).await;
        assert_eq!(records.answer(&newest).get(), None, "asked for again");
    }
}
