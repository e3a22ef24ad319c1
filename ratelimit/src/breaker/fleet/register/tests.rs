use domain::ManualClock;

use super::conformance::{Subject, provider};
use super::*;

struct Here(Arc<ProcessRegister>, Arc<ManualClock>);

impl Here {
    fn new() -> Self {
        let clock = ManualClock::at_unix_ms(0);
        Self(Arc::new(ProcessRegister::new(Arc::<ManualClock>::clone(&clock), 10)), clock)
    }
}

#[async_trait]
impl Subject for Here {
    fn register(&self) -> Arc<dyn Register> {
        Arc::<ProcessRegister>::clone(&self.0)
    }

    async fn pass(&mut self, ms: u64) {
        self.1.advance(Duration::from_millis(ms));
    }
}

crate::register_conformance!(Here::new());

#[tokio::test]
async fn at_its_bound_what_was_written_first_makes_room_and_what_is_over_before_it() {
    let here = Here::new();
    let long = Duration::from_mins(1);
    for nth in 0..10 {
        let ttl = if nth == 5 { Duration::from_millis(1) } else { long };
        here.0.write(provider(&format!("p{nth}")), 0, b"x", ttl).await.unwrap();
    }
    here.1.advance(Duration::from_millis(1));
    for (new, gone) in [("new", "p5"), ("newer", "p0")] {
        here.0.write(provider(new), 0, b"x", long).await.unwrap();
        assert_eq!(here.0.read(provider(gone)).await.unwrap().version, 0);
        assert_eq!(here.0.lock().by_provider.len(), 10);
    }
}
