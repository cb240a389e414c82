//! Commands of the API.

use super::Daemon;
use crate::clock::monotonic;
use crate::reconciler::Event;
use crate::shared::Command;
use sqm_kernel::plan_json::PlanJson;

impl Daemon {
    /// Carries out all pending commands.
    pub(super) fn run_commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            // Sending a reply fails if the client has gone, which is no error.
            match command {
                Command::Apply { interface, reply } => {
                    let outcome = match interface {
                        Some(interface) => self.apply_interface(interface),
                        None => self.reload(),
                    };
                    self.reconcile();
                    let _ = reply.send(outcome);
                }
                Command::Pause {
                    interface,
                    longest,
                    reply,
                } => {
                    // A pause that its client no longer waits for is dropped here, which ends it.
                    let _ = reply.send(self.pause(interface, longest));
                }
                Command::EndPause(id) => self.end_pause(id),
                Command::Plan { reply } => {
                    let plans = self.shaper.current_plans();
                    let json = plans.map(|plans| {
                        let plans: Vec<_> = plans.iter().map(PlanJson::from).collect();
                        serde_json::to_string(&plans).unwrap_or_default()
                    });
                    let _ = reply.send(json.map_err(|error| error.messages()));
                }
                Command::Read { reply } => {
                    let _ = reply.send(self.read_configuration());
                }
                Command::Configure {
                    text,
                    revision,
                    confirm,
                    reply,
                } => {
                    let _ = reply.send(self.configure(&text, &revision, confirm));
                }
                Command::Confirm { reply } => {
                    let _ = reply.send(self.confirm());
                }
                Command::Revert { reply } => {
                    let _ = reply.send(self.roll_back("the change was rolled back on request"));
                }
            }
        }
    }

    /// Applies one interface, even if it was stopped by hand or the daemon backs off.
    fn apply_interface(&mut self, interface: String) -> Result<(), Vec<String>> {
        let sections = self.reconciler.sections();
        if sections.iter().all(|section| section.interface != interface) {
            let file = self.shaper.file().display();
            return Err(vec![format!("{file} has no enabled section for {interface}")]);
        }
        self.reconciler
            .handle(Event::ApplyRequested(interface), monotonic());
        Ok(())
    }
}
