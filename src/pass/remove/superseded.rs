//! Checks that a superseded record still has newer ones: another client may have removed them since the look,
//! and the kubelet would then find only the old one.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::gc::Removal;
use crate::model::{ContainerId, PodSandboxId, Target, Text};
use crate::runtime;

/// The runtime's answers about newer records: each is asked about once in a batch, however many records it
/// supersedes.
#[derive(Debug, Default)]
pub(super) struct NewerRecords(Mutex<BTreeMap<Text, NewerRecord>>);

#[derive(Clone, Debug)]
struct NewerRecord {
    batch: u64,
    is_there: Arc<OnceCell<bool>>,
}

impl NewerRecords {
    /// Asks whether all newer records of this one exist.
    pub(super) async fn all_exist(
        &self,
        client: &runtime::Client,
        removal: &Removal,
        batch: u64,
    ) -> Result<bool, runtime::Error> {
        for id in removal.superseded_by.iter() {
            let answer = self.answer(id, batch);
            let ask = || is_there(client, removal.subject.target, id);
            let is_there: bool = *answer.get_or_try_init(ask).await?;
            if !is_there {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn answer(&self, id: &Text, batch: u64) -> Arc<OnceCell<bool>> {
        let mut all = self.0.lock();
        // Answers of earlier batches are too old.
        all.retain(|_, asked| asked.batch == batch);
        let asked = all.entry(id.clone()).or_insert_with(|| NewerRecord {
            batch,
            is_there: Arc::default(),
        });
        Arc::clone(&asked.is_there)
    }
}

/// Asks the runtime anew whether all newer records of this one exist.
pub(super) async fn all_exist_now(
    client: &runtime::Client,
    removal: &Removal,
) -> Result<bool, runtime::Error> {
    for id in removal.superseded_by.iter() {
        if !is_there(client, removal.subject.target, id).await? {
            return Ok(false);
        }
    }
    Ok(true)
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
