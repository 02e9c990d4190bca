"""Sizes small enough that an algorithm compiles and runs in seconds."""

SMALL = {
    "cells": 32,
    "batch_size": 32,
    "policy_hidden": (8, 8),
    "actor_hidden": (8, 8),
    "critic_hidden": (8, 8),
    "td3_batch_size": 16,
    "critic_steps": 6,
    "pg_steps": 3,
    "replay_size": 3000,
}
