/* SPDX-License-Identifier: MIT
 * own.h - marks stored files that this user has written. The mark is made with a key in the user's cache
 * folder, which no other user can read. A checksum proves that a file is complete; this mark proves who wrote
 * it. */
#ifndef BS_LAB_STORE_OWN_H
#define BS_LAB_STORE_OWN_H

/* The mark of a text, 64 hex digits. key_path: a private file of the user; it is created (with its folder) if
 * it is missing and `make` is set; NULL: no place for one. Returns 1; 0: there is no key that only this user
 * can read. */
int bs_own_mark(const char *key_path, int make, const char *text, char out_mark[65]);
#endif
