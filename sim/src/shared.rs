//! The state that servers, handle and calls in flight share.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tonic::{Code, Response, Status};

use super::Options;
use super::conduct::{Cni, Conduct, Del, Effect, Fault, FaultKey};
use super::lagging_kubelet::FitsSince;
use super::lifecycle::Lifecycle;
use super::node::Node;
use super::record::{Call, Ended, Harm, Record, Rpc};
use super::{image_files, kubelet};

/// One simulated runtime.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) socket: PathBuf,
    pub(super) options: Options,
    pub(super) conduct: watch::Sender<Conduct>,
    lifecycle: Mutex<Lifecycle>,
    node: Mutex<Node>,
    record: Mutex<Record>,
    initialized_at: Mutex<Instant>,
    fits_since: FitsSince,
}

impl Shared {
    pub(super) fn new(socket: PathBuf, mut node: Node, options: Options) -> Self {
        let conduct = Conduct {
            faults: std::collections::BTreeMap::new(),
            cni_default: Cni::healthy(),
            cni: std::mem::take(&mut node.cni),
            disk: options.disk,
            send_limit_bytes: options.send_limit_bytes,
            gzip: options.gzip,
            streaming: options.streaming,
            ignores_filters: false,
            stream_break: None,
        };
        Self {
            socket,
            options,
            conduct: watch::Sender::new(conduct),
            lifecycle: Mutex::new(Lifecycle::default()),
            node: Mutex::new(node),
            record: Mutex::new(Record::default()),
            initialized_at: Mutex::new(Instant::now()),
            fits_since: FitsSince::default(),
        }
    }

    pub(super) fn node(&self) -> MutexGuard<'_, Node> {
        self.node.lock()
    }

    pub(super) fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock()
    }

    pub(super) fn lifecycle(&self) -> MutexGuard<'_, Lifecycle> {
        self.lifecycle.lock()
    }

    pub(super) fn mountpoint(&self) -> &Path {
        let directory = self.socket.parent().unwrap_or(Path::new("/"));
        self.options.mountpoint.as_deref().unwrap_or(directory)
    }

    /// Changes the node; writes the pods file, if there is one, before others can read the node.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Node) -> T) -> T {
        let mut node = self.node();
        let result = change(&mut node);
        self.options.profile.shape(&mut node);
        self.note_weight(&mut node);
        let added = std::mem::take(&mut node.cni);
        if !added.is_empty() {
            self.conduct
                .send_modify(|conduct| conduct.cni.extend(added));
        }
        self.write_pods(&node);
        self.write_images(&node);
        result
    }

    /// Notes since when the kubelet can list.
    pub(super) fn note_weight(&self, node: &mut Node) {
        self.fits_since.note(self.options.lagging_kubelet, node);
    }

    pub(super) fn write_pods(&self, node: &Node) {
        let Some(path) = &self.options.pods_file else {
            return;
        };
        let next = path.with_extension("next");
        let written = std::fs::write(&next, kubelet::pods_json(&node.pods))
            .and_then(|()| std::fs::rename(&next, path));
        if let Err(error) = written {
            tracing::warn!(path = %path.display(), %error, "cannot write the simulated pods file");
        }
    }

    /// Writes the files of new images, and removes those of removed images.
    pub(super) fn write_images(&self, node: &Node) {
        let Some(directory) = &self.options.image_files else {
            return;
        };
        let weight = self.options.image_file_weight;
        if let Err(error) = image_files::keep(directory, node.images.values(), weight) {
            let directory = directory.display();
            tracing::warn!(%directory, %error, "cannot keep the simulated images' files");
        }
    }

    /// Makes every call fail for this long, as in a runtime that has just started.
    pub(super) fn initialize_for(&self, duration: Duration) {
        let mut at = self.initialized_at.lock();
        *at = Instant::now() + duration;
    }

    /// Counts a call and lets it in, delayed or blocked by its faults.
    pub(super) async fn admit(&self, rpc: Rpc) -> Result<(), Status> {
        self.record().count(rpc);
        let initialized_at = *self.initialized_at.lock();
        if Instant::now() < initialized_at {
            let code = self.options.not_initialized_code;
            return Err(Status::new(code, "server is not initialized yet"));
        }
        self.suffer(&FaultKey::Rpc(rpc)).await
    }

    /// Applies the fault of this object's removal, and the disk's delay; says whether the removal is carried out.
    pub(super) async fn suffer_removal(&self, id: &str) -> Result<bool, Status> {
        let key = FaultKey::Removal(id.to_owned());
        let is_carried_out = !self.pretends(&key);
        self.suffer(&key).await?;
        let disk = self.conduct.borrow().disk;
        let others = self.record().in_flight.saturating_sub(1);
        let crowding = disk.crowding * u32::try_from(others).unwrap_or(u32::MAX);
        pause(disk.each + crowding).await;
        Ok(is_carried_out)
    }

    /// Says whether a call is answered and not carried out.
    pub(super) fn pretends(&self, key: &FaultKey) -> bool {
        let pretends = |fault: &Fault| fault.effect == Effect::Pretend;
        self.conduct.borrow().faults.get(key).is_some_and(pretends)
    }

    /// Applies the fault of this container's status.
    pub(super) async fn suffer_status(&self, id: &str) -> Result<(), Status> {
        self.suffer(&FaultKey::Status(id.to_owned())).await
    }

    async fn suffer(&self, key: &FaultKey) -> Result<(), Status> {
        let mut fault = None;
        if self.conduct.borrow().faults.contains_key(key) {
            self.conduct
                .send_modify(|conduct| fault = conduct.take(key));
        }
        let Some(fault) = fault else { return Ok(()) };
        pause(fault.delay).await;
        match fault.effect {
            // The answer is replaced on its way out.
            Effect::Proceed | Effect::Pretend | Effect::Garble(_) => Ok(()),
            Effect::Hang => {
                self.until(|conduct| !conduct.hangs(key)).await;
                Ok(())
            }
            Effect::Fail { code, message, .. } => Err(Status::new(code, message)),
        }
    }

    /// Runs the network plugin's DEL for a sandbox. The error has the plugin's words alone.
    pub(super) async fn cni_del(&self, sandbox_id: &str) -> Result<(), &'static str> {
        let cni = self.conduct.borrow().cni_of(sandbox_id);
        pause(cni.delay).await;
        if cni.del == Del::Hangs {
            self.until(|conduct| conduct.cni_of(sandbox_id).del != Del::Hangs)
                .await;
        }
        cni.error().map_or(Ok(()), Err)
    }

    async fn until(&self, good: impl FnMut(&Conduct) -> bool) {
        // The sender lives as long as we do, so waiting cannot fail.
        let _ = self.conduct.subscribe().wait_for(good).await.is_ok();
    }

    /// Notes the arrival of a changing call.
    pub(super) fn begin(self: &Arc<Self>, rpc: Rpc, asked: &str) -> InFlight {
        let (id, subject) = look_up(&self.node(), rpc, asked);
        let call = Call {
            number: 0,
            rpc,
            id,
            subject,
            handler: String::new(),
            grace_seconds: 0,
            at: Timestamp::now(),
            harms: Vec::new(),
            ended: None,
        };
        let number = self.record().begin(call);
        InFlight {
            shared: Arc::clone(self),
            rpc,
            number,
            code: Code::Cancelled,
        }
    }
}

/// A changing call while it runs. If dropped before its end, it was cancelled.
#[derive(Debug)]
pub(super) struct InFlight {
    shared: Arc<Shared>,
    rpc: Rpc,
    number: u64,
    code: Code,
}

impl InFlight {
    /// Changes the call's record, unless it is forgotten.
    pub(super) fn edit(&self, edit: impl FnOnce(&mut Call)) {
        if let Some(call) = self.shared.record().get_mut(self.number) {
            edit(call);
        }
    }

    pub(super) fn harm(&self, harm: Harm) {
        self.shared.record().harm(self.number, harm);
    }

    /// Notes its end, and converts its result to an answer, which is empty.
    pub(super) fn end<T: Default>(
        mut self,
        result: Result<(), Status>,
    ) -> Result<Response<T>, Status> {
        self.code = result.as_ref().err().map_or(Code::Ok, Status::code);
        result.map(|()| Response::new(T::default()))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let ended = Ended {
            at: Timestamp::now(),
            code: self.code,
        };
        self.shared.record().end(self.number, self.rpc, ended);
    }
}

/// Returns the full id of a call's object, and its readable name; empty: there is none.
fn look_up(node: &Node, rpc: Rpc, asked: &str) -> (String, String) {
    if rpc == Rpc::RemoveImage
        && let Some(image) = node.find_image(asked)
    {
        let tag = image.repo_tags.first().cloned();
        return (image.id.clone(), tag.unwrap_or_default());
    }
    let container = node.containers.get(asked).map(|it| &it.subject);
    let sandbox = || node.sandboxes.get(asked).map(|it| &it.subject);
    let subject = container.or_else(sandbox).cloned();
    (asked.to_owned(), subject.unwrap_or_default())
}

/// Sleeps; returns at once for a zero duration.
async fn pause(duration: Duration) {
    if !duration.is_zero() {
        sleep(duration).await;
    }
}
