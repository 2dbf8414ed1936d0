/* SPDX-License-Identifier: MIT
 * switch.h - from one stack to another. x86-64 and aarch64 have an own switch; SIM_UCONTEXT elsewhere. */
#ifndef BS_SIM_SWITCH_H
#define BS_SIM_SWITCH_H
#include "sim/coroutine.h"

#if defined(SIM_ASAN) || defined(SIM_TSAN) || !(defined(__x86_64__) || defined(__aarch64__))
#define SIM_UCONTEXT 1
#else
/* Keeps what a call must keep on this stack, writes the stack pointer to *out_old, and returns on the stack
 * that `next` was kept of. */
void sim_switch(void **out_old, void *next) __attribute__((visibility("hidden")));
/* A stack pointer for sim_switch whose first return calls enter(arg), which must never return. top: the end
 * of the stack, a multiple of 16. */
void *sim_switch_first(void *top, void (*enter)(void *arg), void *arg);
#endif
#endif
