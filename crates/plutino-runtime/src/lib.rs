//! Plans and runs PNNX models: passes, memory plan, sessions, profiles.
