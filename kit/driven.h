/* SPDX-License-Identifier: MIT
 * driven.h - the kit's own communicator: worlds whose ranks are coroutines that yield at each collective. */
#ifndef BS_KIT_DRIVEN_H
#define BS_KIT_DRIVEN_H
#include <stddef.h>

#include "blockshock/blockshock.h"
#include "sim/coroutine.h"

/* A real stack of a DRIVEN world has 64 KiB. The kit's stacks are larger, so that it can measure by how much
 * a method exceeds the limit. The page below a stack is protected. */
enum { KIT_STACK_BYTES = 1 << 20, KIT_STACK_LIMIT = 32 << 10 };

/* Makes every later world of this context DRIVEN: the kit replaces the context's own copy of the table of
 * `threads`. Fails the check if there is no such communicator. */
void kit_driven_use(bs_context *context);

/* kit_stack_paint fills the unused part of the running coroutine's stack with a pattern. kit_stack_used
 * returns the bytes below this call's frame that were written since. Outside of a coroutine: nothing, and
 * 0. */
void kit_stack_paint(void);
size_t kit_stack_used(void);
#endif
