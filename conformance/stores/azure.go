package stores

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// makeContainer makes a container by a request signed with the account's key.
func makeContainer(endpoint, name string) error {
	cred, err := azblob.NewSharedKeyCredential("devstoreaccount1", azuriteKey)
	if err != nil {
		return err
	}
	c, err := container.NewClientWithSharedKeyCredential(endpoint+"/"+name, cred, nil)
	if err != nil {
		return err
	}
	_, err = c.Create(context.Background(), nil)
	return err
}
