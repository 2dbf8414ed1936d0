/* SPDX-License-Identifier: MIT
 * pb.h - the wire format of protobuf: one record after another, each inside the bytes of its message. Nothing
 * is copied and nothing recurses. Groups are refused. */
#ifndef BS_FORMATS_PB_H
#define BS_FORMATS_PB_H
#include "blockshock/blockshock.h"

enum { BS_PB_VARINT = 0, BS_PB_FIXED64 = 1, BS_PB_BYTES = 2, BS_PB_FIXED32 = 5 };

/* The unread part of a message. */
typedef struct bs_pb {
  const unsigned char *at, *end;
  const unsigned char *file; /* the file's first byte: offsets in messages count from it */
} bs_pb;

typedef struct bs_pb_field {
  uint32_t number; /* 0: the message has ended */
  uint32_t wire;
  uint64_t value;  /* VARINT, FIXED64, FIXED32 */
  bs_pb body;      /* BYTES */
  uint64_t offset; /* of the record in the file */
} bs_pb_field;

/* The next record; advances. BS_INPUT: BS-PB-VARINT (longer than 10 bytes or than 64 bits, or cut off),
 * BS-PB-LENGTH (a record reaches past its message), BS-PB-WIRE (group, unknown wire type, field number 0). */
int32_t bs_pb_next(bs_pb *message, bs_pb_field *out_field, bs_error *err);
/* One varint of a packed list; advances. 1 on success, 0 where bs_pb_next would report BS-PB-VARINT. */
int bs_pb_varint(bs_pb *list, uint64_t *out_value);
/* How often each field number below n occurs; higher numbers are checked and not counted. */
int32_t bs_pb_count(bs_pb message, uint64_t *out_counts, uint32_t n, bs_error *err);
/* The bytes that are left, and where they begin in the file. */
uint64_t bs_pb_size(const bs_pb *message);
uint64_t bs_pb_offset(const bs_pb *message);
/* BS-PB-WIRE when the field has not this wire type. */
int32_t bs_pb_want(const bs_pb_field *field, uint32_t wire, bs_error *err);
#endif
