//! System calls for users, limits and priorities (§2.1).

use tontine_unix::{Errno, PriorityScope, Resource, Result, Rlimit};

use super::call::Caller;
use super::limits::MOST_DESCRIPTORS;
use super::proc::{Phase, ProcState};
use super::references::ProcRef;

impl Caller<'_> {
    pub(super) fn set_user(&self, uid: u32) -> Result<()> {
        if uid == u32::MAX {
            // In setuid(2) and related calls, this number denotes no user.
            return Err(Errno::EINVAL);
        }
        self.guarded(|| {
            let user = self.kernel.user(uid);
            let mut state = self.state();
            let (threads, queued) = (state.threads.len(), state.queued());
            let credentials = &mut state.credentials;
            if credentials.is_privileged() {
                credentials.user.tasks.give_back(threads);
                user.tasks.take_all(threads);
                credentials.user.signals.give_back(queued);
                user.signals.take_all(queued);
                (credentials.real, credentials.saved) = (uid, uid);
                credentials.user = user;
            } else if uid != credentials.real && uid != credentials.saved {
                return Err(Errno::EPERM);
            }
            credentials.effective = uid;
            self.proc.set_users(credentials);
            Ok(())
        })
    }

    pub(super) fn limit(&self, resource: Resource) -> Rlimit {
        self.plain(Rlimit::INFINITY, || match resource {
            Resource::Cpu => self.kernel.time_limit(self.proc),
            _ => self.state().limits.of(resource),
        })
    }

    pub(super) fn set_limit(&self, resource: Resource, limit: Rlimit) -> Result<()> {
        if limit.soft > limit.hard {
            return Err(Errno::EINVAL);
        }
        if resource == Resource::Descriptors && limit.hard > MOST_DESCRIPTORS {
            return Err(Errno::EPERM);
        }
        self.guarded(|| {
            let mut state = self.state();
            let privileged = state.credentials.is_privileged();
            let old = &mut state.limits.0[resource as usize];
            if limit.hard > old.hard && !privileged {
                return Err(Errno::EPERM);
            }
            *old = limit;
            if resource == Resource::Cpu {
                self.kernel.limit_time(self.proc, limit);
            }
            Ok(())
        })
    }

    pub(super) fn priority(&self, whose: PriorityScope) -> Result<i32> {
        self.guarded(|| {
            let mut lowest = None;
            self.each_of(whose, |state| {
                lowest = Some(lowest.map_or(state.nice, |nice: i32| nice.min(state.nice)));
                Ok(())
            })?;
            lowest.ok_or(Errno::ESRCH)
        })
    }

    pub(super) fn set_priority(&self, whose: PriorityScope, nice: i32) -> Result<()> {
        let nice = nice.clamp(-20, 19);
        self.guarded(|| {
            let mine = self.proc.ids();
            let mut result = Err(Errno::ESRCH);
            self.each_of(whose, |state| {
                let theirs = [state.credentials.real, state.credentials.effective];
                let one = if mine.effective != 0 && !theirs.contains(&mine.effective) {
                    Err(Errno::EPERM)
                } else if nice < state.nice && mine.effective != 0 {
                    Err(Errno::EACCES)
                } else {
                    state.nice = nice;
                    Ok(())
                };
                // The call returns one of the errors, even if it succeeded for other processes.
                result = match (result, one) {
                    (_, Err(errno)) => Err(errno),
                    (Err(Errno::ESRCH), Ok(())) => Ok(()),
                    (result, Ok(())) => result,
                };
                Ok(())
            })?;
            result
        })
    }

    /// Calls `each` for every process that `whose` denotes.
    fn each_of(
        &self,
        whose: PriorityScope,
        mut each: impl FnMut(&mut ProcState) -> Result<()>,
    ) -> Result<()> {
        let kernel = self.kernel;
        match whose {
            PriorityScope::Process(pid) => {
                let found = kernel.find(self.or_self(pid)).ok_or(Errno::ESRCH)?;
                let mut state = found.state().ok_or(Errno::ESRCH)?;
                each(&mut state)
            }
            PriorityScope::Group(id) => {
                let found = if id.number() == 0 {
                    kernel.refer_to_group(&self.state())
                } else {
                    kernel.find_group(id)
                };
                let group = found.ok_or(Errno::ESRCH)?;
                let members = group.members.read(&kernel.locks);
                for &slot in &members.slots {
                    let mut state = kernel.slab.get(slot).lock_after(&members);
                    if state.phase == Phase::Live {
                        each(&mut state)?;
                    }
                }
                Ok(())
            }
            PriorityScope::User(uid) => {
                let uid = if uid == 0 { self.proc.ids().real } else { uid };
                for proc in kernel.slab.iter() {
                    let found = ProcRef::new(kernel, proc);
                    let Some(mut state) = found.state() else { continue };
                    if state.phase == Phase::Live && state.credentials.real == uid {
                        each(&mut state)?;
                    }
                }
                Ok(())
            }
        }
    }
}
