/*
 * port.h - finds the process that listens on a TCP port, for the message "port in use".
 */
#ifndef CLI_PORT_H
#define CLI_PORT_H

/* "nginx (process 123)", owned; NULL: the port is free. */
char *cli_port_holder(unsigned port);

#endif
