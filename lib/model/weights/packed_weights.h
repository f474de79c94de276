/*
 * packed_weights.h - the packed weights of a net in a file, so that a later load neither reads the
 * model's weights nor calibrates INT8.
 *
 *   gsv_net_load() --no valid file--> read, calibrate, pack --gsv_net_save()--> file
 *   gsv_net_load() --valid file--> map or read the file, recreate the linears
 *
 * The file holds the net's device memory byte for byte, the digest, the facts of INT8 and a record
 * of each linear. It is only for this machine: byte order, packing and struct layouts are those of
 * the build that wrote it, which the key of the file must cover. A file is replaced by rename and
 * never changed, so processes may map it while another one replaces it.
 */
#ifndef GSV_MODEL_PACKED_WEIGHTS_H
#define GSV_MODEL_PACKED_WEIGHTS_H

#include "lib/model/weights/weights.h"

/* Restores `net` from options->packed, whose `state` and `note` say what was found. False if the
 * file is missing, invalid or of another key; the net then has no memory, as before. */
bool gsv_net_restore(struct gsv_net *net, const struct gsv_net_options *options);

/* Unmaps the file of a restored net. */
void gsv_net_unmap(struct gsv_net *net);

#endif
