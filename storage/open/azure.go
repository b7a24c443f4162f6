package open

import (
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/sluice-data/sluice/storage/azurestore"
)

// openAzure makes the driver of a container. Credentials, the first that is
// there: account key, SAS token, connection string, then the chain of the Azure
// tools (environment, workload identity, managed identity, az login).
func (s settings) openAzure(p place, b *bucket) error {
	c, err := s.httpClient()
	if err != nil {
		return err
	}
	anonymous, err := s.on("anonymous")
	if err != nil {
		return err
	}
	o := &container.ClientOptions{ClientOptions: azurestore.ClientOptions(c)}
	account, endpoint := s.azureAccount(p)
	key, sas, connection := s.getenv("AZURE_STORAGE_KEY"), s.getenv("AZURE_STORAGE_SAS_TOKEN"), s.getenv("AZURE_STORAGE_CONNECTION_STRING")
	if key == "" {
		key = s.getenv("AZURE_STORAGE_ACCOUNT_KEY")
	}
	var client *container.Client
	address := strings.TrimRight(endpoint, "/") + "/" + p.bucket
	needs := account != "" || endpoint != ""
	switch {
	case anonymous && needs:
		client, err = container.NewClientWithNoCredential(address, o)
	case key != "" && account != "":
		var cred *azblob.SharedKeyCredential
		if cred, err = azblob.NewSharedKeyCredential(account, key); err == nil {
			client, err = container.NewClientWithSharedKeyCredential(address, cred, o)
		}
	case sas != "" && needs:
		client, err = container.NewClientWithNoCredential(address+"?"+strings.TrimPrefix(sas, "?"), o)
	case connection != "":
		client, err = container.NewClientFromConnectionString(connection, p.bucket, o)
	case needs:
		var cred *azidentity.DefaultAzureCredential
		if cred, err = azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: azurestore.ClientOptions(c)}); err == nil {
			client, err = container.NewClient(address, cred, o)
		}
	default:
		return &Error{CodeSetting, "account", "which storage account? set AZURE_STORAGE_ACCOUNT or AZURE_STORAGE_CONNECTION_STRING, or write abfss://container@account.dfs.core.windows.net/path"}
	}
	if err != nil {
		// The cause may repeat the key or the connection string.
		return &Error{CodeSetting, "Azure credentials", "key, token or connection string cannot be read"}
	}
	root := "azblob://" + p.bucket + "/"
	if p.account != "" {
		root = p.scheme + "://" + p.bucket + "@" + p.account + "/"
	}
	b.driver = azurestore.New(client, azurestore.Options{URL: root, EncryptionScope: s.get("encryption_scope")})
	return nil
}

// azureAccount is the storage account and the root of its blob service.
func (s settings) azureAccount(p place) (account, endpoint string) {
	account = s.get("account", "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
	host := account + ".blob.core.windows.net"
	if p.account != "" {
		account, _, _ = strings.Cut(p.account, ".")
		host = strings.Replace(p.account, ".dfs.", ".blob.", 1)
		if !strings.Contains(host, ".") {
			host = account + ".blob.core.windows.net"
		}
	}
	if endpoint = s.get("endpoint", "AZURE_STORAGE_ENDPOINT"); endpoint == "" && account != "" {
		endpoint = "https://" + host
	}
	return account, endpoint
}
