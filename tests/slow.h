/* SPDX-License-Identifier: MIT
 * slow.h - sanitizers slow a program several times, and its start more: deadlines that a test gives have to
 * grow with that, or what they are to miss is the machine.
 * Grids of cases are thinned there: each shape and each variant is met, not each with each. */
#ifndef BS_TESTS_SLOW_H
#define BS_TESTS_SLOW_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BS_SLOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define BS_SLOW 1
#endif
#endif
#ifndef BS_SLOW
#define BS_SLOW 0
#endif

#endif
