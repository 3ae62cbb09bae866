//! Wiring compiler, mailboxes, wait policy, scheduler and the actors themselves.
