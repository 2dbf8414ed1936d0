/* SPDX-License-Identifier: MIT
 * own.h - which stored files this user has written: a mark made with a key in the user's cache folder, which
 * nobody else can read. A sum tells that a file is whole; this mark tells whose it is. */
#ifndef BS_LAB_STORE_OWN_H
#define BS_LAB_STORE_OWN_H

/* The mark of a text, 64 hex digits. key_path: a file of the user alone, which is made (with its folder) when
 * there is none and `make` says so; NULL: there is no place for one. Returns 1; 0: there is no key that this
 * user alone can read. */
int bs_own_mark(const char *key_path, int make, const char *text, char out_mark[65]);
#endif
