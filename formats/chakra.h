/* SPDX-License-Identifier: MIT
 * chakra.h - Chakra execution traces (mlcommons/chakra, schema 0.0.4): a file a rank, PREFIX.RANK.et, of
 * protobuf messages, each after its length: GlobalMetadata, then one Node after another.
 *
 * Read are id, name, type, data_deps, the times, and the attributes is_cpu_op, num_ops, tensor_size,
 * comm_type, comm_size, comm_src, comm_dst, comm_tag, pg_name and duration_ps. Other attributes are counted.
 * data_deps order nodes; ctrl_deps name the caller of a node and order nothing, as in Chakra's own feeder.
 * Times in a file are whole us; duration_ps is an additional attribute of ours, so that our own file loses
 * nothing. */
#ifndef BS_FORMATS_CHAKRA_H
#define BS_FORMATS_CHAKRA_H
#include "formats/et.h"

/* A path of a file PREFIX.RANK.et means all files of that prefix. Ranks are 0 to the highest number that the
 * folder has; a missing file between them is an error. The caller calls bs_et_end, and frees the trace in
 * each case. BS_INPUT: BS-CHAKRA-*, or what pb.h and et.h say; the file is in err->where. */
int32_t bs_chakra_read(const char *prefix, bs_et *out_et, bs_error *err);
/* The nodes of one rank, from one file. */
int32_t bs_chakra_read_rank(bs_et *et, const char *path, uint32_t rank, bs_error *err);
/* Writes a file a rank, of a trace that has ended (bs_et_end). BS_IO; BS_UNSUPPORTED, BS-CHAKRA-START: a node
 * needs the start of another. */
int32_t bs_chakra_write(const bs_et *et, const char *prefix, bs_error *err);
#endif
