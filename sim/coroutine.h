/* SPDX-License-Identifier: MIT
 * coroutine.h - functions on stacks of their own that give way to each other on one thread. All stacks of a
 * set lie in one arena that is reserved, not taken: a stack costs the pages that it touches. No global state.
 *
 * The switch is a few lines of assembly on x86-64 and aarch64; elsewhere, and in builds with
 * AddressSanitizer or ThreadSanitizer (which keep books on every stack), it is ucontext. */
#ifndef BS_SIM_COROUTINE_H
#define BS_SIM_COROUTINE_H
#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__)
#define SIM_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define SIM_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIM_ASAN 1
#elif __has_feature(thread_sanitizer)
#define SIM_TSAN 1
#endif
#endif

/* Bytes of a rank's stack. A sanitizer widens every frame. */
#if defined(SIM_ASAN) || defined(SIM_TSAN)
enum { SIM_STACK_BYTES = 256 << 10 };
#else
enum { SIM_STACK_BYTES = 64 << 10 };
#endif

enum { SIM_CO_BLOCKED = 0, SIM_CO_ENDED = 1, SIM_CO_OVERFLOW = -1 };

typedef struct sim_coroutines sim_coroutines;

/* n coroutines of body(arg, 0 .. n-1), none of them begun. stack_bytes: 0 for SIM_STACK_BYTES, else rounded
 * up to pages. Up to 1,024 coroutines have a page below each stack that cannot be touched. NULL: no memory.
 */
sim_coroutines *sim_coroutines_new(uint32_t n, size_t stack_bytes, void (*body)(void *arg, uint32_t i),
                                   void *arg);
/* Coroutines that have not ended are dropped: what they hold is lost. */
void sim_coroutines_free(sim_coroutines *c);

/* From outside: goes on with coroutine i until it gives way (SIM_CO_BLOCKED) or ends. SIM_CO_OVERFLOW: the
 * word at the end of its stack was overwritten; memory is damaged, and the caller must stop the process. */
int sim_coroutine_resume(sim_coroutines *c, uint32_t i);
/* From inside: back to who resumed it. */
void sim_coroutine_yield(sim_coroutines *c);
/* Runs fn(arg) on the stack of who resumed the coroutine, and returns when it has: for code that needs much
 * stack. fn must not yield. Outside of a coroutine it is a plain call. */
void sim_on_main(sim_coroutines *c, void (*fn)(void *arg), void *arg);
/* The coroutine that runs; UINT32_MAX outside and in sim_on_main. */
uint32_t sim_coroutine_running(const sim_coroutines *c);
/* Gives the pages below the coroutine's frames back to the system: after a phase that went deep once. Not for
 * the coroutine that runs. */
void sim_coroutine_trim(sim_coroutines *c, uint32_t i);

/* paint fills the unused part of the running coroutine's stack with a pattern. used returns the bytes below
 * the frame of paint that were written since. Outside of a coroutine they do nothing, and return 0. */
void sim_stack_paint(sim_coroutines *c);
size_t sim_stack_used(const sim_coroutines *c);
#endif
