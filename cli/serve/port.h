/*
 * port.h - who listens on a port already; see port.c.
 */
#ifndef CLI_PORT_H
#define CLI_PORT_H

/* "nginx (process 123)", owned; NULL: nobody does. */
char *cli_port_holder(unsigned port);

#endif
