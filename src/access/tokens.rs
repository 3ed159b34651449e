//! Bearer tokens in files, read again while the service runs. Never holds or shows a token: only its keyed
//! digest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use ring::hmac;
use tokio::time::Instant;

use super::Scope;
use super::config::BearerTokenFiles;
use super::digest::KEY;
use crate::model::{Caller, CallerKind};
use crate::system::blocking::{BlockingPool, NoAnswer};
use crate::system::file;
use crate::telemetry;

/// The longest token; an account's token of Kubernetes has about 1 KiB.
pub(super) const TOKEN_MAX_BYTES: usize = 8 << 10;
/// The largest token file.
const FILE_MAX_BYTES: u64 = 64 << 10;
/// How old the tokens in force may be: a token that left its file ends within this time.
const MAX_AGE: Duration = Duration::from_secs(1);
/// The same when a client shows a token that is not in force: it may be a new one.
const MAX_AGE_OF_UNKNOWN: Duration = Duration::from_millis(100);
/// Timeout for reading all files.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a token file is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read, or what it holds is no token.
    #[error("web.bearer_token_files.{}: {why}", scope.label())]
    File {
        /// The list of files that it is in.
        scope: Scope,
        /// The file and its problem; never its content.
        why: String,
    },
    /// A token for reading would act.
    #[error("web.bearer_token_files: {} and {} hold the same token; a token that may act can also read, so take it out of `read`", read.display(), act.display())]
    Both {
        /// The file of `read`.
        read: PathBuf,
        /// The file of `act`.
        act: PathBuf,
    },
    /// The disk does not answer.
    #[error("web.bearer_token_files cannot be read: {0}")]
    Disk(#[from] NoAnswer),
}

/// A token in force.
#[derive(Clone, Debug)]
struct Token {
    /// Keyed, so that the time of a comparison says nothing about the token.
    digest: hmac::Tag,
    scope: Scope,
    file: Arc<Path>,
}

/// The tokens of all files.
#[derive(Debug)]
pub(super) struct Tokens {
    pub(super) files: BearerTokenFiles,
    disk: BlockingPool,
    in_force: RwLock<Arc<TokensInForce>>,
    /// Held while the files are read, so that a crowd reads them once.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct TokensInForce {
    tokens: Vec<Token>,
    read_at: Instant,
    /// The last problem, so that the log has it once.
    problem: Option<String>,
}

impl Tokens {
    /// Reads the tokens.
    ///
    /// # Errors
    /// If a file is unusable: access must not depend on a file that is not there.
    pub(super) async fn new(files: BearerTokenFiles, disk: BlockingPool) -> Result<Self, Error> {
        let tokens = read(&disk, &files).await?;
        let in_force = TokensInForce {
            tokens,
            read_at: Instant::now(),
            problem: None,
        };
        Ok(Self {
            files,
            disk,
            in_force: RwLock::new(Arc::new(in_force)),
            reading: tokio::sync::Mutex::default(),
        })
    }

    /// Returns whose token this is, by the name of its file without the directory, and what it may do; `None` if it is
    /// in no file.
    pub(super) async fn find(&self, token: &[u8]) -> Option<(Caller, Scope)> {
        if self.files.is_empty() || token.len() > TOKEN_MAX_BYTES {
            return None;
        }
        self.refresh(MAX_AGE).await;
        if let Some(found) = self.look_up(token) {
            return Some(found);
        }
        self.refresh(MAX_AGE_OF_UNKNOWN).await;
        self.look_up(token)
    }

    fn look_up(&self, token: &[u8]) -> Option<(Caller, Scope)> {
        let in_force = Arc::clone(&self.in_force.read());
        // Compares with each, so that the time does not tell the place of the one that fits.
        let fits = |it: &&Token| hmac::verify(&KEY, token, it.digest.as_ref()).is_ok();
        let fitting: Vec<&Token> = in_force.tokens.iter().filter(fits).collect();
        let found = fitting.first()?;
        let name = found.file.file_name().unwrap_or(found.file.as_os_str());
        let caller = Caller::new(CallerKind::Token, name.to_string_lossy());
        Some((caller, found.scope))
    }

    /// Reads the files again if the tokens in force are older than `max_age`. Keeps those in force if that
    /// fails: half of a rotation must not lock everybody out.
    async fn refresh(&self, max_age: Duration) {
        let is_fresh = || self.in_force.read().read_at.elapsed() < max_age;
        if is_fresh() {
            return;
        }
        let _one_at_a_time = self.reading.lock().await;
        if is_fresh() {
            return;
        }
        let read = read(&self.disk, &self.files).await;
        let before = Arc::clone(&self.in_force.read());
        let (tokens, problem) = match read {
            Ok(tokens) => (tokens, None),
            Err(error) => {
                let problem = telemetry::chain(&error);
                if before.problem.as_ref() != Some(&problem) {
                    tracing::error!(
                        error = problem,
                        "the bearer tokens were not read again; the old ones stay in force"
                    );
                }
                (before.tokens.clone(), Some(problem))
            }
        };
        *self.in_force.write() = Arc::new(TokensInForce {
            tokens,
            read_at: Instant::now(),
            problem,
        });
    }
}

async fn read(disk: &BlockingPool, files: &BearerTokenFiles) -> Result<Vec<Token>, Error> {
    let files = files.clone();
    let work = move || {
        let mut tokens = Vec::new();
        for (scope, paths) in [(Scope::Read, &files.read), (Scope::Act, &files.act)] {
            for path in paths {
                add(&mut tokens, path, scope)?;
            }
        }
        refuse_shared(&tokens)?;
        Ok(tokens)
    };
    disk.run(READ_TIMEOUT, work).await?
}

fn add(tokens: &mut Vec<Token>, path: &Path, scope: Scope) -> Result<(), Error> {
    let refuse = |why: String| Error::File { scope, why };
    let shown = path.display();
    let text = file::open(path).and_then(|mut file| file::bounded(&mut file, FILE_MAX_BYTES));
    let text = text.map_err(|error| refuse(format!("cannot read {shown}: {error}")))?;
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let mut lines = lines.filter(|line| !line.is_empty()).peekable();
    if lines.peek().is_none() {
        return Err(refuse(format!(
            "{shown} is empty; write a token into it, for example: openssl rand -hex 32"
        )));
    }
    let file: Arc<Path> = path.into();
    for line in lines {
        if line.len() > TOKEN_MAX_BYTES || !line.iter().all(u8::is_ascii_graphic) {
            return Err(refuse(format!(
                "{shown} holds a token with spaces or control characters, or one of more than {TOKEN_MAX_BYTES} bytes; \
                 write one token on each line"
            )));
        }
        tokens.push(Token {
            digest: hmac::sign(&KEY, line),
            scope,
            file: Arc::clone(&file),
        });
    }
    Ok(())
}

/// Refuses a file that is in both lists.
pub(super) fn refuse_shared_files(files: &BearerTokenFiles) -> Result<(), Error> {
    match files.read.iter().find(|file| files.act.contains(file)) {
        Some(file) => Err(Error::Both {
            read: file.clone(),
            act: file.clone(),
        }),
        None => Ok(()),
    }
}

fn refuse_shared(tokens: &[Token]) -> Result<(), Error> {
    let mut first: BTreeMap<&[u8], &Token> = BTreeMap::new();
    for token in tokens {
        let other = first.entry(token.digest.as_ref()).or_insert(token);
        if other.scope != token.scope {
            return Err(Error::Both {
                read: other.file.to_path_buf(),
                act: token.file.to_path_buf(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    struct Files {
        dir: TempDir,
    }

    impl Files {
        fn with(contents: &[(&str, &str)]) -> Self {
            let dir = TempDir::new().unwrap();
            let files = Self { dir };
            for (name, content) in contents {
                files.write(name, content);
            }
            files
        }

        fn write(&self, name: &str, content: &str) {
            let (to, new) = (self.dir.path().join(name), self.dir.path().join("new"));
            fs::write(&new, content).unwrap();
            fs::rename(new, to).unwrap();
        }

        async fn tokens(&self, read: &[&str], act: &[&str]) -> Result<Tokens, Error> {
            let paths = |names: &[&str]| names.iter().map(|it| self.dir.path().join(it)).collect();
            let files = BearerTokenFiles {
                read: paths(read),
                act: paths(act),
            };
            Tokens::new(files, BlockingPool::new(2)).await
        }
    }

    /// Moves the clock, without waiting.
    async fn pass(time: Duration) {
        tokio::time::pause();
        tokio::time::advance(time).await;
        tokio::time::resume();
    }

    fn found(scope: Scope, name: &str) -> (Caller, Scope) {
        (Caller::new(CallerKind::Token, name), scope)
    }

    #[tokio::test]
    async fn a_token_has_the_scope_and_the_name_of_its_file() {
        let files = Files::with(&[("prometheus", "one\n"), ("ops", "\n two \r\nthree")]);
        let tokens = files.tokens(&["prometheus"], &["ops"]).await.unwrap();
        assert_eq!(
            tokens.find(b"one").await,
            Some(found(Scope::Read, "prometheus"))
        );
        for token in ["two", "three"] {
            let act = Some(found(Scope::Act, "ops"));
            assert_eq!(tokens.find(token.as_bytes()).await, act, "{token}");
        }
        for wrong in ["", "on", "ones", "One", " two", "two\n", "four"] {
            assert_eq!(tokens.find(wrong.as_bytes()).await, None, "{wrong:?}");
        }
    }

    #[tokio::test]
    async fn an_added_token_works_soon_and_a_removed_one_ends_within_a_second() {
        let files = Files::with(&[("ops", "old")]);
        let tokens = files.tokens(&[], &["ops"]).await.unwrap();
        files.write("ops", "new");
        pass(MAX_AGE_OF_UNKNOWN).await;
        assert!(tokens.find(b"new").await.is_some());
        assert_eq!(tokens.find(b"old").await, None);
        files.write("ops", "newer");
        pass(MAX_AGE).await;
        assert_eq!(tokens.find(b"new").await, None);
    }

    #[tokio::test]
    async fn a_file_that_breaks_while_running_leaves_its_tokens_in_force() {
        let files = Files::with(&[("ops", "secret")]);
        let tokens = files.tokens(&[], &["ops"]).await.unwrap();
        for broken in ["", "a b", "a\u{7}"] {
            files.write("ops", broken);
            pass(MAX_AGE).await;
            assert!(tokens.find(b"secret").await.is_some(), "{broken:?}");
        }
        assert!(tokens.in_force.read().problem.is_some());
        fs::remove_file(files.dir.path().join("ops")).unwrap();
        pass(MAX_AGE).await;
        assert!(tokens.find(b"secret").await.is_some());
    }

    #[tokio::test]
    async fn unusable_files_are_refused_with_their_key_and_path() {
        let long = "x".repeat(TOKEN_MAX_BYTES + 1);
        let files = Files::with(&[
            ("empty", " \n\n"),
            ("two words", "a b"),
            ("long", &long),
            ("same", "secret"),
            ("good", "secret"),
            ("large", &"x\n".repeat(40_000)),
        ]);
        for (read, act, wanted) in [
            (vec!["empty"], vec![], "web.bearer_token_files.read: "),
            (vec![], vec!["empty"], "is empty; write a token"),
            (vec![], vec!["two words"], "spaces"),
            (vec![], vec!["long"], "more than 8192 bytes"),
            (vec![], vec!["large"], "cannot read"),
            (vec![], vec!["missing"], "cannot read"),
            (vec![], vec!["."], "cannot read"),
            (vec!["same"], vec!["good"], "hold the same token"),
        ] {
            let error = files.tokens(&read, &act).await.unwrap_err().to_string();
            assert!(error.contains(wanted), "{read:?} {act:?}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[tokio::test]
    async fn no_debug_output_shows_a_token() {
        let files = Files::with(&[("ops", "hidden-secret")]);
        let tokens = files.tokens(&[], &["ops"]).await.unwrap();
        assert!(!format!("{tokens:?}").contains("hidden-secret"));
    }
}
