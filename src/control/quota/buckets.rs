//! Buckets, page by page, and one whole.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use ratelimit::quota::holder::Holding;
use ratelimit::quota::{Answer, Application, Body, BucketKey, BucketName, BucketView, Describe, Level, Name, PAGE_MAX};
use tokio::time::Instant;

use super::wire::{HoldingLine, LIMIT_MAX, ListQuery, Listed, ShowQuery, Shown};
use super::{Desk, DeskError, bucket_named, line};

/// Applications that are looked up at a time.
const APPLICATIONS_AT_A_TIME: usize = 64;
/// Questions to the centre for one answer, each of up to a hundred buckets.
const ASKS_MAX: usize = 256;
/// After so long an answer has what it has.
const PAGE_TIME: Duration = Duration::from_secs(2);
/// This node's leases of one bucket that are shown.
const HERE_MAX: usize = 100;

/// Which of them are wanted, read.
#[derive(Debug, Clone)]
struct Filter {
    provider: Option<Name>,
    application: Option<Name>,
    level: Option<Level>,
    parked: bool,
    limit: usize,
}

/// How far a list has come.
enum Place {
    /// Behind this application; none: before the first.
    After(Option<Application>),
    /// Within one, behind this bucket.
    Within(BucketName),
}

impl Filter {
    fn of(query: &ListQuery) -> Result<Self, DeskError> {
        let name = |text: &Option<String>, what: &str| {
            let read = |text: &String| {
                Name::parse(text).map_err(|fault| DeskError::Refused(format!("the name of the {what} {fault}")))
            };
            text.as_ref().map(read).transpose()
        };
        let level = |word: &String| {
            let no = || DeskError::Refused("a level is app, connection, region or source".to_owned());
            Level::parse(word).ok_or_else(no)
        };
        if !(1..=LIMIT_MAX).contains(&query.limit) {
            return Err(DeskError::Refused(format!("a page has 1 to {LIMIT_MAX} buckets")));
        }
        Ok(Self {
            provider: name(&query.provider, "provider")?,
            application: name(&query.application, "application")?,
            level: query.level.as_ref().map(level).transpose()?,
            parked: query.parked,
            limit: query.limit as usize,
        })
    }

    fn takes_bucket(&self, application: &Application, view: &BucketView) -> bool {
        self.takes(application)
            && self.level.is_none_or(|level| view.key.level == level)
            && (view.park.is_some() || !self.parked)
    }

    fn takes(&self, application: &Application) -> bool {
        self.provider.as_ref().is_none_or(|wanted| *wanted == application.provider)
            && self.application.as_ref().is_none_or(|wanted| *wanted == application.name)
    }
}

impl Place {
    fn of(after: Option<&str>) -> Result<Self, DeskError> {
        let Some(after) = after else { return Ok(Self::After(None)) };
        if after.contains('/') {
            return bucket_named(after).map(Self::Within);
        }
        let read = after.parse().map_err(|fault| DeskError::Refused(format!("the application's name {fault}")));
        read.map(|application| Self::After(Some(application)))
    }

    fn told(&self) -> Option<String> {
        match self {
            Self::After(application) => application.as_ref().map(ToString::to_string),
            Self::Within(bucket) => Some(bucket.to_string()),
        }
    }
}

/// Applications behind a place, some at a time.
struct Applications {
    ahead: VecDeque<Application>,
    is_last: bool,
}

impl Desk {
    /// The next buckets of all applications that this node has met or that are configured.
    pub(crate) async fn list(&self, query: &ListQuery) -> Result<Listed, DeskError> {
        let (filter, mut place) = (Filter::of(query)?, Place::of(query.after.as_deref())?);
        let (until, mut asks, mut buckets) = (Instant::now() + PAGE_TIME, 0, Vec::new());
        let mut applications = Applications { ahead: VecDeque::new(), is_last: false };
        loop {
            let (application, after) = match &place {
                Place::Within(bucket) => (bucket.application.clone(), Some(bucket.key.clone())),
                Place::After(after) => match self.next_application(&mut applications, after.clone(), &filter).await? {
                    Some(application) => (application, None),
                    None => return Ok(Listed { buckets, next: None }),
                },
            };
            let page = self.page(&application, after).await?;
            place = match page.last() {
                None => Place::After(Some(application.clone())),
                Some(last) => Place::Within(BucketName { application: application.clone(), key: last.key.clone() }),
            };
            for view in page.into_iter().filter(|view| filter.takes_bucket(&application, view)) {
                let key = view.key.clone();
                buckets.push(line::bucket(&application, view, self.quota.holder.id(), self.now_unix_ms()));
                if buckets.len() >= filter.limit {
                    let next = Some(BucketName { application, key }.to_string());
                    return Ok(Listed { buckets, next });
                }
            }
            asks += 1;
            if asks >= ASKS_MAX || Instant::now() >= until {
                return Ok(Listed { buckets, next: place.told() });
            }
        }
    }

    /// One bucket, and what this node holds of it.
    pub(crate) async fn show(&self, query: &ShowQuery) -> Result<Option<Shown>, DeskError> {
        let name = bucket_named(&query.bucket)?;
        let Some(view) = self.bucket(&name).await? else { return Ok(None) };
        let holder = &self.quota.holder;
        let (here, here_all) = holder.holdings_of(&name.application, &name.key, HERE_MAX);
        Ok(Some(Shown {
            line: line::bucket(&name.application, view, holder.id(), self.now_unix_ms()),
            node: holder.id().to_string(),
            here: here.iter().map(holding).collect(),
            here_all,
        }))
    }

    async fn page(&self, application: &Application, after: Option<BucketKey>) -> Result<Vec<BucketView>, DeskError> {
        let body = Body::Describe(Describe { after, limit: PAGE_MAX });
        let Answer::Buckets(views) = self.ask(application, body).await? else { return Err(DeskError::Odd) };
        Ok(views)
    }

    async fn next_application(
        &self,
        applications: &mut Applications,
        after: Option<Application>,
        filter: &Filter,
    ) -> Result<Option<Application>, DeskError> {
        if let (Some(provider), Some(name)) = (&filter.provider, &filter.application) {
            // One that is named need not be known here: others may have it.
            let only = Application { provider: provider.clone(), name: name.clone() };
            return Ok(Some(only).filter(|only| after.is_none_or(|after| *only > after)));
        }
        if applications.ahead.is_empty() && !applications.is_last {
            let (desk, filter) = (self.clone(), filter.clone());
            // There may be as many as there are connections.
            let some = tokio::task::spawn_blocking(move || desk.applications(after.as_ref(), &filter)).await;
            applications.ahead = some.map_err(|_| DeskError::Odd)?.into();
            applications.is_last = applications.ahead.len() < APPLICATIONS_AT_A_TIME;
        }
        Ok(applications.ahead.pop_front())
    }

    /// Those that are wanted behind one, in order: of connections that are configured, and of whatever else was met, such
    /// as source addresses.
    fn applications(&self, after: Option<&Application>, filter: &Filter) -> Vec<Application> {
        let mut first = BTreeSet::new();
        let mut take = |application: &Application| {
            let is_ahead = after.is_none_or(|after| application > after) && filter.takes(application);
            let has_room = first.len() < APPLICATIONS_AT_A_TIME || first.last().is_some_and(|last| application < last);
            if is_ahead && has_room {
                first.insert(application.clone());
                if first.len() > APPLICATIONS_AT_A_TIME {
                    first.pop_last();
                }
            }
        };
        for (_, entry) in self.snapshot.load().connections.iter() {
            if let Some((application, _)) = entry.connection.counted_as() {
                take(application);
            }
        }
        self.quota.holder.each_application(|application| take(application));
        first.into_iter().collect()
    }
}

fn holding(holding: &Holding) -> HoldingLine {
    HoldingLine {
        tenant: holding.tenant.to_string(),
        free: holding.free,
        granted: holding.granted,
        in_use: holding.in_use,
        ttl_ms: holding.ttl_ms,
        generation: holding.generation,
        queued: holding.queued,
        wanted_milli: holding.rate_milli,
        asking: holding.is_asking,
    }
}
