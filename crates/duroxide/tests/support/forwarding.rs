//! A store that forwards calls to another: one macro writes the methods that do nothing else.

/// Implements `Provider` for a store that has another one in a field. The methods behind `forwards` hand the call on;
/// the store writes the others itself. With `first`, each forwarded call first runs that method, and fails if that
/// method fails.
///
/// ```ignore
/// forwarding_provider! {
///     Wrapper => inner, first step;
///     forwards: [read, enqueue_for_worker];
///     async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> { … }
/// }
/// ```
macro_rules! forwarding_provider {
    ($store:ident => $inner:ident $(, first $first:ident)?; forwards: [$($method:ident),* $(,)?]; $($own:tt)*) => {
        forwarding_provider!(@next [$($method)*] [$store $inner $($first)?] { $($own)* });
    };
    (@next [] [$store:ident $inner:ident $($first:ident)?] { $($body:tt)* }) => {
        #[::async_trait::async_trait]
        impl ::duroxide::providers::Provider for $store { $($body)* }
    };
    (@next [fetch_orchestration_item $($rest:ident)*] [$store:ident $inner:ident $($first:ident)?] { $($body:tt)* }) => {
        forwarding_provider!(@next [$($rest)*] [$store $inner $($first)?] {
            $($body)*
            async fn fetch_orchestration_item(
                &self,
                lock_timeout: ::std::time::Duration,
                poll_timeout: ::std::time::Duration,
                filter: Option<&::duroxide::providers::DispatcherCapabilityFilter>,
            ) -> Result<Option<(::duroxide::providers::OrchestrationItem, String, u32)>, ::duroxide::providers::ProviderError> {
                $(self.$first()?;)?
                self.$inner.fetch_orchestration_item(lock_timeout, poll_timeout, filter).await
            }
        });
    };
    (@next [ack_orchestration_item $($rest:ident)*] [$store:ident $inner:ident $($first:ident)?] { $($body:tt)* }) => {
        forwarding_provider!(@next [$($rest)*] [$store $inner $($first)?] {
            $($body)*
            async fn ack_orchestration_item(
                &self,
                lock_token: &str,
                execution_id: u64,
                history_delta: Vec<::duroxide::Event>,
                worker_items: Vec<::duroxide::providers::WorkItem>,
                orchestrator_items: Vec<::duroxide::providers::WorkItem>,
                metadata: ::duroxide::providers::ExecutionMetadata,
                cancelled: Vec<::duroxide::providers::ScheduledActivityIdentifier>,
            ) -> Result<(), ::duroxide::providers::ProviderError> {
                $(self.$first()?;)?
                self.$inner.ack_orchestration_item(lock_token, execution_id, history_delta, worker_items, orchestrator_items, metadata, cancelled).await
            }
        });
    };
    (@next [abandon_orchestration_item $($rest:ident)*] [$store:ident $inner:ident $($first:ident)?] { $($body:tt)* }) => {
        forwarding_provider!(@next [$($rest)*] [$store $inner $($first)?] {
            $($body)*
            async fn abandon_orchestration_item(
                &self,
                lock_token: &str,
                delay: Option<::std::time::Duration>,
                ignore_attempt: bool,
            ) -> Result<(), ::duroxide::providers::ProviderError> {
                $(self.$first()?;)?
                self.$inner.abandon_orchestration_item(lock_token, delay, ignore_attempt).await
            }
        });
    };
    (@next [renew_orchestration_item_lock $($rest:ident)*] [$store:ident $inner:ident $($first:ident)?] { $($body:tt)* }) => {
        forwarding_provider!(@next [$($rest)*] [$store $inner $($first)?] {
            $($body)*
            async fn renew_orchestration_item_lock(
                &self,
                token: &str,
                extend_for: ::std::time::Duration,
            ) -> Result<(), ::duroxide::providers::ProviderError> {
                $(self.$first()?;)?
                self.$inner.renew_orchestration_item_lock(token, extend_for).await
            }
        });
    };
    (@next [read $($rest:ident)*] [$store:ident $inner:ident $($first:ident)?] { $($body:tt)* }) => {
        forwarding_provider!(@next [$($rest)*] [$store $inner $($first)?] {
            $($body)*
            async fn read(
                &self,
                instance: &str,
            ) -> Result<Vec<::duroxide::Event>, ::duroxide::providers::ProviderError> {
                $(self.$first()?;)?
                self.$inner.read(instance).await
            }
        });
    };
    (@next [read_with_execution $($rest:ident)*] [$store:ident $inner:ident $($first:ident)?] { $($body:tt)* }) => {
        forwarding_provider!(@next [$($rest)*] [$store $inner $($first)?] {
            $($body)*
            async fn read_with_execution(
                &self,
                instance: &str,
                execution_id: u64,
            ) -> Result<Vec<::duroxide::Event>, ::duroxide::providers::ProviderError> {
                $(self.$first()?;)?
                self.$inner.read_with_execution(instance, execution_id).await
            }
        });
    };
    (@next [append_with_execution $($rest:ident)*] [$store:ident $inner:ident $($first:ident)?] { $($body:tt)* }) => {
        forwarding_provider!(@next [$($rest)*] [$store $inner $($first)?] {
            $($body)*
            async fn append_with_execution(
                &self,
                instance: &str,
                execution_id: u64,
                events: Vec<::duroxide::Event>,
            ) -> Result<(), ::duroxide::providers::ProviderError> {
                $(self.$first()?;)?
                self.$inner.append_with_execution(instance, execution_id, events).await
            }
        });
    };
    (@next [enqueue_for_worker $($rest:ident)*] [$store:ident $inner:ident $($first:ident)?] { $($body:tt)* }) => {
        forwarding_provider!(@next [$($rest)*] [$store $inner $($first)?] {
            $($body)*
            async fn enqueue_for_worker(
                &self,
                item: ::duroxide::providers::WorkItem,
            ) -> Result<(), ::duroxide::providers::ProviderError> {
                $(self.$first()?;)?
                self.$inner.enqueue_for_worker(item).await
            }
        });
    };
    (@next [fetch_work_item $($rest:ident)*] [$store:ident $inner:ident $($first:ident)?] { $($body:tt)* }) => {
        forwarding_provider!(@next [$($rest)*] [$store $inner $($first)?] {
            $($body)*
            async fn fetch_work_item(
                &self,
                lock_timeout: ::std::time::Duration,
                poll_timeout: ::std::time::Duration,
                session: Option<&::duroxide::providers::SessionFetchConfig>,
                tags: &::duroxide::providers::TagFilter,
            ) -> Result<Option<(::duroxide::providers::WorkItem, String, u32)>, ::duroxide::providers::ProviderError> {
                $(self.$first()?;)?
                self.$inner.fetch_work_item(lock_timeout, poll_timeout, session, tags).await
            }
        });
    };
    (@next [ack_work_item $($rest:ident)*] [$store:ident $inner:ident $($first:ident)?] { $($body:tt)* }) => {
        forwarding_provider!(@next [$($rest)*] [$store $inner $($first)?] {
            $($body)*
            async fn ack_work_item(
                &self,
                token: &str,
                completion: Option<::duroxide::providers::WorkItem>,
            ) -> Result<(), ::duroxide::providers::ProviderError> {
                $(self.$first()?;)?
                self.$inner.ack_work_item(token, completion).await
            }
        });
    };
    (@next [renew_work_item_lock $($rest:ident)*] [$store:ident $inner:ident $($first:ident)?] { $($body:tt)* }) => {
        forwarding_provider!(@next [$($rest)*] [$store $inner $($first)?] {
            $($body)*
            async fn renew_work_item_lock(
                &self,
                token: &str,
                extend_for: ::std::time::Duration,
            ) -> Result<(), ::duroxide::providers::ProviderError> {
                $(self.$first()?;)?
                self.$inner.renew_work_item_lock(token, extend_for).await
            }
        });
    };
    (@next [abandon_work_item $($rest:ident)*] [$store:ident $inner:ident $($first:ident)?] { $($body:tt)* }) => {
        forwarding_provider!(@next [$($rest)*] [$store $inner $($first)?] {
            $($body)*
            async fn abandon_work_item(
                &self,
                token: &str,
                delay: Option<::std::time::Duration>,
                ignore_attempt: bool,
            ) -> Result<(), ::duroxide::providers::ProviderError> {
                $(self.$first()?;)?
                self.$inner.abandon_work_item(token, delay, ignore_attempt).await
            }
        });
    };
    (@next [renew_session_lock $($rest:ident)*] [$store:ident $inner:ident $($first:ident)?] { $($body:tt)* }) => {
        forwarding_provider!(@next [$($rest)*] [$store $inner $($first)?] {
            $($body)*
            async fn renew_session_lock(
                &self,
                owners: &[&str],
                extend_for: ::std::time::Duration,
                idle_timeout: ::std::time::Duration,
            ) -> Result<usize, ::duroxide::providers::ProviderError> {
                $(self.$first()?;)?
                self.$inner.renew_session_lock(owners, extend_for, idle_timeout).await
            }
        });
    };
    (@next [cleanup_orphaned_sessions $($rest:ident)*] [$store:ident $inner:ident $($first:ident)?] { $($body:tt)* }) => {
        forwarding_provider!(@next [$($rest)*] [$store $inner $($first)?] {
            $($body)*
            async fn cleanup_orphaned_sessions(
                &self,
                idle_timeout: ::std::time::Duration,
            ) -> Result<usize, ::duroxide::providers::ProviderError> {
                $(self.$first()?;)?
                self.$inner.cleanup_orphaned_sessions(idle_timeout).await
            }
        });
    };
    (@next [enqueue_for_orchestrator $($rest:ident)*] [$store:ident $inner:ident $($first:ident)?] { $($body:tt)* }) => {
        forwarding_provider!(@next [$($rest)*] [$store $inner $($first)?] {
            $($body)*
            async fn enqueue_for_orchestrator(
                &self,
                item: ::duroxide::providers::WorkItem,
                delay: Option<::std::time::Duration>,
            ) -> Result<(), ::duroxide::providers::ProviderError> {
                $(self.$first()?;)?
                self.$inner.enqueue_for_orchestrator(item, delay).await
            }
        });
    };
    (@next [get_custom_status $($rest:ident)*] [$store:ident $inner:ident $($first:ident)?] { $($body:tt)* }) => {
        forwarding_provider!(@next [$($rest)*] [$store $inner $($first)?] {
            $($body)*
            async fn get_custom_status(
                &self,
                instance: &str,
                last_seen: u64,
            ) -> Result<Option<(Option<String>, u64)>, ::duroxide::providers::ProviderError> {
                $(self.$first()?;)?
                self.$inner.get_custom_status(instance, last_seen).await
            }
        });
    };
    (@next [get_kv_value $($rest:ident)*] [$store:ident $inner:ident $($first:ident)?] { $($body:tt)* }) => {
        forwarding_provider!(@next [$($rest)*] [$store $inner $($first)?] {
            $($body)*
            async fn get_kv_value(
                &self,
                instance: &str,
                key: &str,
            ) -> Result<Option<String>, ::duroxide::providers::ProviderError> {
                $(self.$first()?;)?
                self.$inner.get_kv_value(instance, key).await
            }
        });
    };
    (@next [get_kv_all_values $($rest:ident)*] [$store:ident $inner:ident $($first:ident)?] { $($body:tt)* }) => {
        forwarding_provider!(@next [$($rest)*] [$store $inner $($first)?] {
            $($body)*
            async fn get_kv_all_values(
                &self,
                instance: &str,
            ) -> Result<::std::collections::HashMap<String, String>, ::duroxide::providers::ProviderError> {
                $(self.$first()?;)?
                self.$inner.get_kv_all_values(instance).await
            }
        });
    };
    (@next [get_instance_stats $($rest:ident)*] [$store:ident $inner:ident $($first:ident)?] { $($body:tt)* }) => {
        forwarding_provider!(@next [$($rest)*] [$store $inner $($first)?] {
            $($body)*
            async fn get_instance_stats(
                &self,
                instance: &str,
            ) -> Result<Option<::duroxide::SystemStats>, ::duroxide::providers::ProviderError> {
                $(self.$first()?;)?
                self.$inner.get_instance_stats(instance).await
            }
        });
    };
}
pub(crate) use forwarding_provider;
