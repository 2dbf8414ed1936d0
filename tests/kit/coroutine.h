/* SPDX-License-Identifier: MIT
 * coroutine.h - functions on stacks of their own that give way to each other on one thread, and how deep such
 * a stack was used: what the kit's DRIVEN world (driven_comm.c) is made of. */
#ifndef BS_TESTS_KIT_COROUTINE_H
#define BS_TESTS_KIT_COROUTINE_H
#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define KIT_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define KIT_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KIT_ASAN 1
#elif __has_feature(thread_sanitizer)
#define KIT_TSAN 1
#endif
#endif

/* A real stack of a DRIVEN world has 64 KiB; the kit's have more room, so that it can tell how far a method
 * is beyond what is allowed. A page below it can not be touched. */
enum { KIT_STACK_BYTES = 1 << 20, KIT_STACK_LIMIT = 32 << 10 };

typedef struct kit_coroutine kit_coroutine;

/* NULL: no memory. */
kit_coroutine *kit_coroutine_new(void (*body)(void *arg), void *arg);
void kit_coroutine_free(kit_coroutine *c);
/* From outside: goes on with it until it gives way or ends. 1: it has ended. */
int kit_coroutine_resume(kit_coroutine *c);
/* From inside: back to who resumed it. */
void kit_coroutine_yield(kit_coroutine *c);
/* Of the running coroutine: fills the unused part with a pattern; the bytes below this call's frame that were
 * written since. Outside of a coroutine: nothing, and 0. */
void kit_stack_paint(void);
size_t kit_stack_used(void);
#endif
