/* SPDX-License-Identifier: MIT
 * driven.h - the kit's own communicator: worlds whose ranks are coroutines that give way at each collective.
 */
#ifndef BS_TESTS_KIT_DRIVEN_H
#define BS_TESTS_KIT_DRIVEN_H
#include "blockshock/blockshock.h"

/* From here on every world of this context is DRIVEN: the context's own copy of the table of `threads`
 * becomes that of the kit. Fails the check when there is no such communicator. */
void kit_driven_use(bs_context *context);
#endif
