//! wip
use crate::core::Core;
use std::sync::Arc;
use tokio::sync::watch;
pub(crate) async fn run(_core: Arc<Core>, _ending: watch::Receiver<bool>) {}
