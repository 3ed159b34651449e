//! All that the page shows, gathered once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, Method, header};
use jiff::Timestamp;

use super::super::events::PageState;
use super::super::quarantine::QuarantinedSandbox;
use super::super::status::PodsJudgement;
use super::super::{HttpError, Service, api, clock, evidence};
use super::asked::Asked;
use crate::access::{Asking, Decision, Peer, Scope};
use crate::config::Config;
use crate::doctor::Report;
use crate::evidence::{cri_log, unpack};
use crate::fleet::Standing;
use crate::gc::Plan;
use crate::gc::explain::ExplainAnswer;
use crate::gc::knowledge::{Knowledge, SourceState};
use crate::health::{HealthFacts, HealthFinding, HealthReport};
use crate::model::{Brake, Evidence, FailureClass, Pass, Target, Targets};
use crate::snapshot::{Look, TrendSample};
use crate::state::EvidenceFilter;

/// How long the page waits for a look; then it shows the latest one.
const LOOK_PATIENCE: Duration = Duration::from_secs(3);
/// The header of a page that is shown already and follows what moves.
const LIVE: &str = "crisweep-live";
/// How old a look may be for it: a page must not bring about the looks that it follows.
const LIVE_MAX_AGE: Duration = Duration::from_secs(30);
/// Evidence that the page lists.
pub(super) const EVIDENCE_ROWS: u32 = 20;

/// What a part of the page shows, or why it cannot.
pub(super) type PageResult<T> = Result<T, String>;

/// Whether the client may act.
#[derive(Debug)]
pub(super) enum MayAct {
    /// The client may act.
    Act,
    /// The browser will ask for a credential; the words name it.
    Ask(&'static str),
    /// The client may not act; the text says why.
    Not(String),
}

/// The evidence of one container.
#[derive(Debug)]
pub(super) struct ShownEvidence {
    pub(super) evidence: Evidence,
    /// The end of its log, or why this client does not get it.
    pub(super) log: PageResult<String>,
}

/// What comes from the latest look.
pub(super) struct NodeView {
    pub(super) look: Option<Arc<Look>>,
    /// The runtime answered it just now.
    pub(super) is_new: bool,
    pub(super) verdict: HealthReport,
    pub(super) pods: PodsJudgement,
    /// The plan of a pass over everything.
    pub(super) plan: PageResult<Arc<Plan>>,
    /// The plan of the pass that must be confirmed.
    pub(super) asked_plan: Option<PageResult<Arc<Plan>>>,
    pub(super) explanation: Option<PageResult<ExplainAnswer>>,
}

/// All that the page shows.
pub(super) struct View {
    pub(super) asked: Asked,
    /// Its state, read before the rest was gathered.
    pub(super) state: PageState,
    pub(super) config: Arc<Config>,
    pub(super) now: Timestamp,
    pub(super) node: NodeView,
    pub(super) trend: Vec<TrendSample>,
    /// The passes of the history, newest first.
    pub(super) passes: Vec<Pass>,
    /// The pass that was asked for.
    pub(super) pass: Option<PageResult<Pass>>,
    /// The progress lines of the running or asked pass.
    pub(super) lines: Vec<String>,
    pub(super) quarantine: (BTreeMap<FailureClass, usize>, Vec<QuarantinedSandbox>),
    pub(super) evidence: PageResult<Vec<Evidence>>,
    pub(super) shown_evidence: Option<PageResult<ShownEvidence>>,
    /// The causes of litter, where they were asked for.
    pub(super) doctor: Option<PageResult<Report>>,
    pub(super) holding: Vec<Brake>,
    pub(super) standing: Standing,
    pub(super) may: MayAct,
    /// Acting needs a credential, also on the node itself.
    pub(super) needs_credential: bool,
}

impl View {
    /// Gathers everything.
    ///
    /// # Errors
    /// If the node cannot be judged; a bug in crisweep.
    pub(super) async fn gather(
        service: &Service,
        asked: Asked,
        peer: &Peer,
        headers: &HeaderMap,
    ) -> Result<Self, HttpError> {
        let state = PageState::of(service);
        let mut max_age = service.config().collect.max_age;
        if headers.contains_key(LIVE) {
            max_age = max_age.max(LIVE_MAX_AGE);
        }
        let look = service.observer.shared(max_age);
        let (look, is_new) = match tokio::time::timeout(LOOK_PATIENCE, look).await {
            Ok(Ok(look)) => (Some(look), true),
            Ok(Err(_)) | Err(_) => (service.latest(), false),
        };
        let pass = match &asked.pass {
            Some(id) => Some(api::found(service, id).await.map_err(String::from)),
            None => None,
        };
        let lines = lines(service, &asked);
        let evidence = evidence_of_pod(service, &asked).await;
        let shown_evidence = match &asked.evidence {
            Some(id) => Some(shown(service, peer, id.clone()).await),
            None => None,
        };
        let doctor = match (&look, asked.doctor) {
            (Some(look), true) => Some(api::report(service, look).await.map_err(String::from)),
            (Some(_) | None, _) => None,
        };
        let may = may(service, peer, headers).await;
        let quarantine = (
            service.quarantined_by_class(look.as_deref()),
            service.quarantined_first(look.as_deref()),
        );
        let question = asked.clone();
        let node = service.heavy(move |service| NodeView::of(service, look, is_new, &question));
        Ok(Self {
            config: service.config(),
            now: clock(),
            node: node.await?,
            trend: service.observer.trend(),
            passes: service.worker.passes(),
            pass,
            lines,
            quarantine,
            evidence,
            shown_evidence,
            doctor,
            holding: service.worker.holding(),
            standing: service.worker.fleet().standing(),
            may,
            needs_credential: service.access.get().has_credentials(),
            state,
            asked,
        })
    }

    pub(super) fn running(&self) -> Option<&Pass> {
        let runs = |pass: &&Pass| pass.started_at.is_some() && !pass.is_done();
        self.passes.iter().find(runs)
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = &Pass> {
        self.passes.iter().filter(|pass| pass.waits())
    }

    /// Says why a real pass would not run now.
    pub(super) fn held(&self) -> Option<&str> {
        let held = self.standing.held.as_deref();
        held.or(self
            .config
            .brakes
            .pause
            .then_some("passes are paused (brakes.pause)"))
    }
}

impl NodeView {
    fn of(service: &Service, look: Option<Arc<Look>>, is_new: bool, asked: &Asked) -> Self {
        let no_look = PodsJudgement {
            state: SourceState::None,
            why: None,
        };
        let pods = look.as_deref().map_or(no_look, |look| pods(service, look));
        let mut facts = match &look {
            Some(look) => HealthFacts::of(look, is_new, pods.state),
            None => HealthFacts::without_look(service.runtime_answers()),
        };
        if service.observer.hangs() {
            facts.service = Some(HealthFinding::problem("service hangs, restart it"));
        }
        let config = service.config();
        let taken = look.as_ref();
        let taken = taken.ok_or("no look at the node has been taken yet");
        let plan = |targets: &BTreeSet<Target>| {
            let plan = service.plan_under(taken?, &config.policy, targets);
            plan.map_err(|error| error.to_string())
        };
        let explain = |id: &String| Ok(api::explanation(service, taken?, id)?);
        Self {
            verdict: facts.judge(&config.thresholds, Some(&config.policy), "service"),
            pods,
            plan: plan(&Targets::all().0),
            asked_plan: asked.confirm.then(|| plan(&asked.pass_targets())),
            explanation: asked.explain.as_ref().map(explain),
            is_new,
            look,
        }
    }
}

fn pods(service: &Service, look: &Look) -> PodsJudgement {
    let config = service.config();
    match service.worker.runner().snapshot(look) {
        Ok(snapshot) => PodsJudgement::of(&Knowledge::of(&snapshot, &config.policy)),
        Err(_) => PodsJudgement::by_source(&look.pods),
    }
}

fn lines(service: &Service, asked: &Asked) -> Vec<String> {
    let running = || service.worker.running().map(|pass| pass.id);
    let id = asked.pass.clone().or_else(running);
    let record = id.and_then(|id| service.worker.find(&id));
    record.map_or_else(Vec::new, |record| record.lines_from(0))
}

async fn evidence_of_pod(service: &Service, asked: &Asked) -> PageResult<Vec<Evidence>> {
    let filter = EvidenceFilter {
        pod: asked.pod.clone(),
        limit: EVIDENCE_ROWS,
        ..EvidenceFilter::default()
    };
    Ok(service.stored(filter).await?.rows)
}

async fn shown(service: &Service, peer: &Peer, id: String) -> PageResult<ShownEvidence> {
    let (evidence, packed) = evidence::found(service, id).await?;
    let log = if !evidence::may_read_logs(service, peer) {
        Err(evidence::NO_LOGS.to_owned())
    } else if let Some(bytes) = unpack(&packed) {
        let output = cri_log::output(&bytes, evidence.log.is_whole);
        Ok(String::from_utf8_lossy(&output).into_owned())
    } else {
        Err(evidence::DAMAGED.to_owned())
    };
    Ok(ShownEvidence { evidence, log })
}

/// Says whether the reader could begin a pass with what it shows now.
async fn may(service: &Service, peer: &Peer, headers: &HeaderMap) -> MayAct {
    let authorization = headers.get(header::AUTHORIZATION);
    let asking = Asking {
        scope: Scope::Act,
        peer,
        authorization: authorization.and_then(|value| value.to_str().ok()),
        method: &Method::POST,
        route: Some("/gc"),
    };
    let access = service.access.get();
    match access.decide(asking).await {
        Decision::Allowed(_) => MayAct::Act,
        Decision::Forbidden(why) | Decision::Unavailable(why) => MayAct::Not(why),
        Decision::Unauthenticated(why) => match access.asks_for() {
            Some(words) => MayAct::Ask(words),
            None => MayAct::Not(why),
        },
    }
}
